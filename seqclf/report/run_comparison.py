"""Comparison of finished runs from the files in their folders: settings with their seeds, and paired differences.

Runs that differ only in their seed are one setting. A paired difference is one of two models on the same rows, and
average precision is no mean over rows, so differences are not averaged over seeds: the run with the median score stands
for its setting (of an even number the lower one of the middle two).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from seqclf.config.setting_names import setting_names, settings_of
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.documents.formatting import shown_path
from seqclf.errors import InputError, first_line
from seqclf.evaluation.judge import Facts
from seqclf.evaluation.ladder import JudgedRows
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.scores import Scores
from seqclf.evaluation.uncertainty.comparison import MetricComparison, RowPredictions
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.report.run_report import read_run
from seqclf.report.score_table import ShownMetric
from seqclf.system.json_result import JsonResult


class FinishedRun(NamedTuple):
    """Content of a run folder that a comparison needs. `split`: split whose rows are compared."""

    folder: Path
    seed: int
    settings: dict[str, Any]
    scores: Scores
    facts: Facts
    result: RunResult
    split: str

    @property
    def outputs(self) -> SplitOutputs:
        """Outputs for the rows that are compared."""
        return self.scores.splits[self.split]

    def value(self, metric: ShownMetric) -> float | None:
        """Return a score of the run, None for one that is not defined."""
        value = metric.value(self.result.splits[self.split])
        return None if value is None else round(float(value), 6)

    def predictions(self, rows: SplitOutputs) -> RowPredictions:
        """Return the predictions of rows, which the run shares, under its decision."""
        logits, decision = self.outputs.logits[matched(rows, self.outputs)], self.result.decision
        return RowPredictions(decision.choose(logits), decision.probabilities(logits))


@dataclass(frozen=True, kw_only=True)
class Setting(JsonResult):
    """Runs on the same rows that differ in nothing but the seed, from the lowest score to the highest.

    `setting`: the overrides in which it differs from others. `scores`: dict title of a metric → score of each run; the
    metric that decides comes first. `train_s`: mean time of a training, and `weights`: number of trained weights, None
    if unknown. `difference`: comparison of the median run with that of the setting `against`. `other_rows`: why there
    is none, None if the rows are the same.
    """

    setting: str
    runs: list[str]
    seeds: list[int]
    scores: dict[str, list[float | None]]
    train_s: float | None
    weights: int | None
    difference: MetricComparison | None
    other_rows: str | None


@dataclass(frozen=True, kw_only=True)
class RunComparison(JsonResult):
    """Result of a comparison of runs.

    `against`: name of the setting that the others are compared with, on its `rows` of `split`. `settings`: all of them,
    the best one first. `skipped`: dict folder of a glob → why it holds no finished run.
    """

    split: str
    rows: int
    against: str
    settings: list[Setting]
    skipped: dict[str, str]


def compare_runs(entries: Sequence[str], against: str | None = None, split: str | None = None) -> RunComparison:
    """Compare finished runs.

    `entries`: folders of runs, or globs of them. `against`: one of the folders, with whose setting the others are
    compared; None for the best setting. `split`: split whose rows are compared; None for the one that judges each run.

    Raises InputError for a named folder without a finished run, for no run at all, and for an unknown `against`.
    """
    runs, skipped = read_runs(entries, split)
    is_accuracy, positive = all(run.facts.monitor == "accuracy" for run in runs), runs[0].scores.positive
    deciding = ShownMetric("accuracy") if is_accuracy else ShownMetric("average_precision", positive is not None)
    others = ShownMetric("recall", positive is not None), ShownMetric("recall"), ShownMetric("accuracy")
    shown = {metric_title(name, positive if own else None): ShownMetric(name, own) for name, own in (deciding, *others)}
    groups = _groups(runs, deciding)
    chosen = 0 if against is None else _group_of(groups, Path(against).resolve())
    names = [name or "all runs" for name in setting_names([group[0].settings for group in groups])]
    reference, settings = _median(groups[chosen]), []
    for place, group in enumerate(groups):
        trainings, reason = [run.facts.training for run in group if run.facts.training], other_rows(group[0], reference)
        seconds = [training.seconds for training in trainings if training.seconds is not None]
        setting = Setting(
            setting=names[place],
            runs=[shown_path(run.folder) for run in group],
            seeds=[run.seed for run in group],
            scores={title: [run.value(metric) for run in group] for title, metric in shown.items()},
            train_s=round(fmean(seconds), 2) if seconds else None,
            weights=next((training.weights for training in trainings), None),
            difference=None if reason or place == chosen else _compare(_median(group), reference, deciding.name),
            other_rows=reason,
        )
        settings.append(setting)
    rows = len(reference.outputs.labels)
    return RunComparison(split=reference.split, rows=rows, against=names[chosen], settings=settings, skipped=skipped)


def read_runs(entries: Sequence[str], split: str | None = None) -> tuple[list[FinishedRun], dict[str, str]]:
    """Return the runs of folders and globs, each once, and dict folder of a glob → why it holds no finished run."""
    is_named: dict[Path, bool] = {}
    for entry in entries:
        is_glob = has_magic(entry) and not Path(entry).exists()
        for path in map(Path, sorted(glob(entry, recursive=True)) if is_glob else [entry]):  # noqa: PTH207, also absolute
            if path.is_dir() or not is_glob:
                is_named[path.resolve()] = is_named.get(path.resolve(), False) or not is_glob
    runs, skipped = [], {}
    for folder, named in is_named.items():
        try:
            runs.append(_read_finished(folder, split))
        except InputError as error:
            if named:
                raise
            skipped[shown_path(folder)] = error.problem
    if not runs:
        raise InputError(f"runs=[{','.join(entries)}]", "holds no finished run", "name folders of finished runs")
    return runs, skipped


def _read_finished(folder: Path, split: str | None) -> FinishedRun:
    """Read a run. Raises InputError if it is not finished, or if `split` does not judge its model."""
    contenders, facts, settings = read_run(folder)
    scores = contenders[-1]
    try:
        result = RunResult.from_dict(json.loads((folder / "metrics.json").read_text(encoding="utf-8")))
        split, seed = split or result.split, int(settings["seed"])
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise InputError(folder, f"has no metrics of a finished run ({first_line(error)})", "train again") from None
    if split in ("train", THRESHOLD) or split not in result.splits or split not in scores.splits:
        raise InputError(folder, f"has no rows of {split} that judge its model", "name another split")
    return FinishedRun(folder, seed, settings_of(settings), scores, facts, result, split)


def other_rows(run: FinishedRun, other: FinishedRun) -> str | None:
    """Return why two runs cannot be compared row by row, None if they can. The order of their rows may differ."""
    facts = [(one.scores.classes, one.scores.positive, one.split) for one in (run, other)]
    if facts[0] != facts[1]:
        return "other classes, another positive label or another split"
    places, most = matched(run.outputs, other.outputs), max(len(run.outputs.labels), len(other.outputs.labels))
    is_shared = (places >= 0) & (run.outputs.labels == other.outputs.labels[places])
    shared = len(np.unique(places[is_shared]))
    return None if shared == most else f"other rows or labels: {shared:,} of {most:,} shared"


def matched(rows: SplitOutputs, others: SplitOutputs) -> np.ndarray:
    """Return the position (N,) of each row among other rows by its id, -1 for a row that they lack."""
    assert rows.ids is not None and others.ids is not None, "rows of a file"
    if rows.ids.equals(others.ids):  # ids may repeat
        return np.arange(len(rows.ids))
    return np.array(pc.fill_null(pc.index_in(rows.ids, value_set=others.ids), -1)).astype(np.int64)


def _groups(runs: Sequence[FinishedRun], deciding: ShownMetric) -> list[list[FinishedRun]]:
    """Return the runs of each setting from the lowest score to the highest, the best setting first."""
    groups: list[list[FinishedRun]] = []
    for run in sorted(runs, key=lambda run: run.value(deciding) or 0):
        alike = (group for group in groups if group[0].settings == run.settings)
        group = next((group for group in alike if not other_rows(run, group[0])), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return sorted(groups, key=lambda group: -fmean(run.value(deciding) or 0 for run in group))


def _group_of(groups: Sequence[list[FinishedRun]], folder: Path) -> int:
    for place, group in enumerate(groups):
        if folder in [run.folder for run in group]:
            return place
    raise InputError(f"against={shown_path(folder)}", "is none of the runs", "name the folder of one of them")


def _median(group: Sequence[FinishedRun]) -> FinishedRun:
    return group[(len(group) - 1) // 2]


def _compare(run: FinishedRun, reference: FinishedRun, monitor: str) -> MetricComparison:
    """Return the comparison that decides between two runs on the same rows, by the groups that one of them knows."""
    base = run if reference.outputs.groups is None else reference
    rows, scores = base.outputs, base.scores
    judged = JudgedRows(rows.labels, scores.classes, scores.positive, monitor, group_codes(rows.groups))
    return judged.compare(run.predictions(rows), reference.predictions(rows))[0]
