"""Validation rows for the threshold of a guarantee, used for neither the epoch nor the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, subset
from seqclf.evaluation.decision import uses_holdout
from seqclf.evaluation.holdout import holdout_rows


def hold_out(dataset: Dataset, settings: Mapping[str, Any], rule: str) -> tuple[Dataset, Split | None]:
    """Return the dataset without the validation rows that are held out, and those rows.

    `settings`: of conf/decision. `rule`: the decision rule. The rows are a stratified share, and the only row of a
    class stays in validation, and groups stay together. The rows are None if the rule guarantees nothing or the share
    is 0. They are None for a provisional decision (`settings["provisional"]`) too,
    which leaves the same rows out of validation but does not see them.
    """
    if not uses_holdout({**settings, "provisional": False}, rule):
        return dataset, None
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, settings["holdout"], validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    holdout = None if settings["provisional"] else subset(validation, np.flatnonzero(held_out))
    return replace(dataset, splits={**dataset.splits, "validation": remaining}), holdout
