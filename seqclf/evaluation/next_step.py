"""The next step after a training: one sentence that follows from the result of the run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from seqclf.evaluation.alarms import CHANCE, USELESS_ALERTS, WEAK_THRESHOLD
from seqclf.evaluation.baseline_alarms import rounded_up
from seqclf.evaluation.decision import BY_HAND, CHOSEN, FOLDS, Guarantee
from seqclf.evaluation.holdout import folds_setting
from seqclf.evaluation.result import REASONS, Facts, RunResult
from seqclf.evaluation.thresholds import SURE
from seqclf.settings.data_settings import ALL_FOLDS

MIN_EPOCHS = 12  # smallest number of epochs of trainer.max_epochs=auto
ADVISED_EPOCHS = 30  # smallest number of epochs that is advised after a training that was too short
LAST_EPOCHS = 0.9  # a best epoch in the last tenth of the training may mean that the training ended too early
MAX_SHORT_STEPS = 3000  # optimizer steps; the falling learning rate makes the last epochs of a longer training the best
MIN_ERROR = 0.1  # a model with a smaller error (1 - macro recall) on its training rows is not trained for longer
RANDOM_SPLITS = ("random", "distinct")  # values of data.split.by that divide the rows of a group
PLAIN_PATH = re.compile(r"[\w./:@%+-]+", re.ASCII)  # a path that needs no quotes in a shell or in Hydra


def next_step(result: RunResult, facts: Facts) -> str:
    """Return one sentence that recommends the most useful next step, the most urgent problem first."""
    split, metrics, baseline = result.split, result.metrics, result.baseline
    if shared := _rows_of_shared_groups(result, facts.settings["data"]):
        return f"train again with data.split.by=group: {shared:,} rows of {split} are of a group that train has too."
    if _is_too_short(result, facts):
        epochs = max(ADVISED_EPOCHS, 2 * facts.epochs)
        return f"train again with trainer.max_epochs={epochs}: {facts.epochs} were too few to learn its rows."
    if baseline is not None and baseline.comparisons and baseline.comparisons[0].is_worse:
        return "use the simpler model if it is enough, or train another network and compare both by validation scores."
    few = next((guarantee for guarantee in result.decision.targets if guarantee.lacks_rows), None)
    if metrics.alarms and (few is None or metrics.alarms[0].kind not in (USELESS_ALERTS, WEAK_THRESHOLD)):
        return f"try {metrics.alarms[0].remedy}."
    targets = [target for target in result.decision.targets if target.rule != "cost"]
    weak = next((target for target in targets if not target.backed), few if metrics.alarms else None)
    if weak is not None:
        return _step_to_back(weak, result, facts.settings)
    if metrics.used_for:
        if facts.settings["data"]["split"].get("fold") == ALL_FOLDS:
            return f"judge it on new rows with seqclf evaluate: all rows chose its {' and '.join(metrics.used_for)}."
        return "train again with data.split.test=0.2, so that rows which chose nothing about the model judge it."
    if REASONS[CHANCE] in result.not_yet:
        return f"judge it on more rows than the {metrics.rows:,} of {split}: {REASONS[CHANCE]}."
    if result.not_yet:
        return f"settle this first: {result.not_yet[0]}."
    bundle = facts.bundle if facts.bundle and PLAIN_PATH.fullmatch(facts.bundle) else "BUNDLE"
    return f"use it with seqclf predict bundle={bundle} input=new.parquet output=scores.parquet"


def _rows_of_shared_groups(result: RunResult, data: Mapping[str, Any]) -> int:
    """Return the rows of the last split whose group an earlier split has too, if a random cut divided it."""
    leaks, is_cut = result.leaks, not data.get(result.split) and data["split"]["by"] in RANDOM_SPLITS
    return 0 if leaks is None or leaks.dropped or not is_cut else (leaks.groups_seen_before or {}).get(result.split, 0)


def _is_too_short(result: RunResult, facts: Facts) -> bool:
    """Return True if the limit of epochs ended a training whose model makes most of its errors on training rows too.

    The limit has to be low, or one of the last epochs has to be the best. Without `monitor` the last epoch is exported.
    """
    settings, splits = facts.settings, result.splits
    limit = settings["trainer"]["max_epochs"] or 0
    if facts.epochs != limit or not {"train", "validation"} <= splits.keys():
        return False
    error, gap = 1 - splits["train"].recall, splits["train"].recall - splits["validation"].recall
    is_last_best = bool(settings["monitor"]) and (facts.best_epoch or 0) + 1 > LAST_EPOCHS * limit
    was_improving = is_last_best and facts.steps <= MAX_SHORT_STEPS
    return error > max(MIN_ERROR, gap) and (limit < MIN_EPOCHS or was_improving)


def _step_to_back(guarantee: Guarantee, result: RunResult, settings: Mapping[str, Any]) -> str:
    target = f"decision.{guarantee.rule}={guarantee.target:g}"
    if guarantee.basis == CHOSEN:
        return "train again with decision.provisional=false decision.holdout=auto: other rows must set the threshold."
    if guarantee.basis == BY_HAND:
        return "correct the labels of the rows that were left out, and train again."
    if guarantee.takes is not None:
        budget = math.ceil(1000 * guarantee.takes) / 1000
        return f"raise decision.max_alerts to {budget:g}, or set a recall below {target}."
    data, is_of_folds = settings["data"], guarantee.basis == FOLDS
    if is_of_folds and guarantee.statement == SURE and not guarantee.conflict:
        by = "group" if data.get("group") else "random"
        return f"train again with data.split.by={by} data.split.fold=0, because folds back nothing that is sure."
    precision = result.metrics.precision_by_class[guarantee.label] or 0.0
    is_precise = guarantee.rule == "min_precision" and precision >= guarantee.target
    if guarantee.conflict or not (guarantee.lacks_rows or is_precise):
        return f"set an easier target than {target}: the model does not separate the classes well enough."
    all_rows, needed = _all_rows(guarantee, result, data), guarantee.needed or 0
    is_enough, folds = (all_rows or needed) >= needed, None if guarantee.confidence else folds_setting(settings)
    if folds and is_enough and (all_rows is None or all_rows > guarantee.rows):
        count = "more" if all_rows is None else f"{all_rows:,}"
        return f"train again with {folds}, so that {count} {guarantee.counted} set the threshold."
    counts = f"more {guarantee.counted} than {guarantee.rows:,}"
    if needed > guarantee.rows:
        counts = f"about {rounded_up(needed):,} {guarantee.counted} instead of {guarantee.rows:,}"
    is_cut = is_enough and not is_of_folds and not data.get("validation") and not data.get("generator")
    return f"get {counts} to set the threshold of {target} ({'data.split.validation, or ' if is_cut else ''}more data)."


def _all_rows(guarantee: Guarantee, result: RunResult, data: Mapping[str, Any]) -> int | None:
    """Return the number of rows that a rule counts in all splits that folds would cut, None if it is unknown."""
    if guarantee.unit is not None or guarantee.rule == "min_precision":  # scores do not tell groups and later alerts
        return None
    splits = [split for name, split in result.splits.items() if name == "train" or not data.get(name)]
    is_all, held_out = guarantee.rule == "max_alerts", result.holdout_rows and not data.get("validation")
    counts = [split.rows if is_all else split.support_by_class[guarantee.label] for split in splits]
    return sum(counts) + (guarantee.rows if held_out else 0)
