"""Validation rows for the threshold of a guarantee, used for neither the epoch nor the settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split, subset
from seqclf.evaluation.choose_decision import GUARANTEED_RULES
from seqclf.evaluation.holdout import holdout_rows
from seqclf.evaluation.options import DecisionOptions


def hold_out(dataset: Dataset, options: DecisionOptions, rule: str) -> tuple[Dataset, Split | None]:
    """Return the dataset without the validation rows that are held out, and those rows.

    `rule`: the decision rule. The rows are a stratified share, and the only row of a class stays in validation, and
    groups stay together. The rows are None if the rule guarantees nothing or the share is 0. They are None for a
    `provisional` decision too, which leaves the same rows out of validation but does not see them.
    """
    if rule not in GUARANTEED_RULES or not options.holdout:
        return dataset, None
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, options.holdout, validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    holdout = None if options.provisional else subset(validation, np.flatnonzero(held_out))
    return replace(dataset, splits={**dataset.splits, "validation": remaining}), holdout
