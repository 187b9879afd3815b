"""Checks of a network with code of another package, before its first epoch.

The tests of this package show for its own networks that they export, and that the logits of a sequence do not depend on
the batch that it is in. Both are easily lost, and without these checks would only show after the training or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.config.instantiate import is_foreign, targets
from seqclf.models.ensemble import Ensemble
from seqclf.models.export_checks import check_exportable, padding_error
from seqclf.training.module import SequenceTask

LARGEST_ERROR = 1e-4  # of logits; the rounding errors of another order of summation are a hundred times smaller


def check_foreign_network(task: SequenceTask, export: bool) -> list[str]:
    """Return warnings about the network of a task, none if all of its code is of this package.

    `export`: raise InputError, which says what to do, unless the network can be exported.
    """
    hyper: Mapping[str, Any] = task.hparams
    foreign = [f"{key}={target}" for key, target in targets(hyper["model"], "model") if is_foreign(target)]
    if not foreign:
        return []
    network = task.model.members[0] if isinstance(task.model, Ensemble) else task.model
    fields = hyper["dataset"]["fields"]
    # First, because it runs the network as training will: an error in its code is no failure of the export.
    error = padding_error(network, fields, foreign[0])
    if export:
        check_exportable(network, fields, foreign[0])
    if error <= LARGEST_ERROR:
        return []
    return [
        f"{foreign[0]}: the logits of a sequence change by up to {error:.1g} with its padding and batch mates, so its "
        "prediction depends on the rows that are scored with it; let the network read no token beyond lengths"
    ]
