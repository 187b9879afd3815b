"""Comparison of finished runs from the files in their folders: settings with their seeds, and paired differences.

Runs that differ only in their seed are one setting. A paired difference is one of two models on the same rows, and
average precision is no mean over rows, so differences are not averaged over seeds: the run with the median score stands
for its setting (of an even number the lower one of the middle two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from seqclf.config.command_keys import flat_keys
from seqclf.config.setting_names import NOT_OF_FIT, setting_names
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.documents.blocks import Document, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, shortened, shown_path
from seqclf.documents.terminal import show_note, show_section
from seqclf.errors import InputError, first_line
from seqclf.evaluation.comparison import Comparison
from seqclf.evaluation.judge import compare_rows
from seqclf.evaluation.metrics import ShownMetric, label_metrics, metric_title
from seqclf.evaluation.ranking import ranking_metrics
from seqclf.evaluation.result import Facts, RunResult
from seqclf.evaluation.scores import ScoredRows, Scores
from seqclf.evaluation.split_result import WeightedMetrics
from seqclf.report.score_tables import difference_cells, interval_cell, score_columns
from seqclf.runs.run_files import read_run
from seqclf.system.durations import duration_text
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import FAILURE
from seqclf.system.state_validation import read_json

NOTE = (
    "Scores are means over the runs of a setting. A difference is that of the runs with the median scores of two "
    "settings, on the same rows; its 95% interval is about such rows, and not about other seeds. The best of several "
    "settings owes some of its score to chance: choose by split=validation, and judge by test."
)


class ComparedRun(NamedTuple):
    """Content of a run folder that a comparison needs.

    `settings`: dict dotted key → value that the training depends on, without the seed. `split`: split whose rows are
    compared.
    """

    folder: Path
    seed: int
    settings: dict[str, Any]
    scores: Scores
    facts: Facts
    result: RunResult
    split: str

    @property
    def outputs(self) -> ScoredRows:
        """Outputs for the rows that are compared."""
        return self.scores.splits[self.split]

    def judged_for(self, label: str | None) -> ComparedRun:
        """Return the run with the metrics of another positive label, with none if the label is none of its classes."""
        if label in (None, self.scores.positive):
            return self
        rows, result, classes = self.outputs, self.result, self.scores.classes
        label, metrics, block = label if label in classes else None, result.splits[self.split], None
        if label is not None:
            ranking = ranking_metrics(rows.labels, rows.probabilities(result.decision), classes.index(label))
            block = label_metrics(metrics, label, ranking)
        judged = replace(result, splits={**result.splits, self.split: replace(metrics, positive=block)})
        return self._replace(scores=replace(self.scores, positive=label), result=judged)

    def by_weight(self) -> ComparedRun:
        """Return the run with its metrics by the weights of the rows."""
        rows, decision, positive = self.outputs, self.result.decision, self.scores.positive
        given = rows.probabilities(decision), self.scores.classes, positive, rows.predicted(decision), rows.weights
        found: Any = WeightedMetrics.of(rows.labels.astype(np.int64), *given)
        return self._replace(result=replace(self.result, splits={**self.result.splits, self.split: found}))

    def value(self, metric: ShownMetric) -> float | None:
        """Return a score of the run, None for one that is not defined."""
        value = metric.value(self.result.splits[self.split])
        return None if value is None else round(float(value), 6)


@dataclass(frozen=True, kw_only=True)
class Setting(JsonResult):
    """Runs on the same rows that differ in nothing but the seed, from the lowest score to the highest.

    `setting`: the keys in which it differs from others. `scores`: dict title of a metric → score of each run; the
    metric that decides comes first. `train_s`: time of the training of the run with the median score, and `weights`:
    number of trained weights, None if unknown. `difference`: comparison of the median run with that of the setting
    `against`, None for that setting itself and on other rows.
    """

    setting: str
    runs: list[str]
    seeds: list[int]
    scores: dict[str, list[float | None]]
    train_s: float | None
    weights: int | None
    difference: Comparison | None


@dataclass(frozen=True, kw_only=True)
class RunComparison(JsonResult):
    """Result of a comparison of runs.

    `against`: name of the setting that the others are compared with, on its `rows` of `split`. `settings`: all of them,
    the best one first. `alerts`: dict folder of a run → why it is left out, or has no difference.
    """

    split: str
    rows: int
    against: str
    settings: list[Setting]
    alerts: dict[str, str]


def compare_runs(entries: Sequence[str], against: str | None = None, split: str | None = None) -> RunComparison:
    """Compare finished runs. Runs of two positive labels are all judged for that of `against`, or of the first run.

    `entries`: folders of runs, or globs of them. `against`: one of the folders, with whose setting the others are
    compared; None for the best setting. `split`: split whose rows are compared; None for the one that judges each run.
    Rows count by their weights if all runs have the same.

    Raises InputError for no finished run at all, and for an unknown `against`.
    """
    runs, alerts = read_runs(entries, split)
    named = None if against is None else Path(against).resolve()
    label = next((run for run in runs if run.folder == named), runs[0]).scores.positive
    runs, is_accuracy = [run.judged_for(label) for run in runs], all(run.facts.monitor == "accuracy" for run in runs)
    by_weight = all(_has_weights_of(run, runs[0]) for run in runs)
    runs = [run.by_weight() for run in runs] if by_weight else runs
    deciding = ShownMetric("accuracy") if is_accuracy else ShownMetric("average_precision", label is not None)
    others = ShownMetric("recall", label is not None), ShownMetric("recall"), ShownMetric("accuracy")
    start = "weighted " if by_weight else ""
    titles = {
        start + metric_title(each.name, label if each.of_positive else None): each for each in (deciding, *others)
    }
    groups, settings = _groups(runs, deciding), []
    asked = named or groups[0][0].folder
    chosen = [place for place, group in enumerate(groups) if asked in [run.folder for run in group]]
    if not chosen:
        raise InputError(f"against={against}", "is none of the runs", "name the folder of one of them")
    names = [name or "all runs" for name in setting_names([group[0].settings for group in groups])]
    medians = [group[(len(group) - 1) // 2] for group in groups]
    reference = medians[chosen[0]]
    for name, group, median in zip(names, groups, medians, strict=True):
        is_comparable = has_same_rows(median, reference)
        folders = [shown_path(run.folder) for run in group]
        alerts |= {} if is_comparable else dict.fromkeys(folders, "other rows, labels or classes")
        setting = Setting(
            setting=name,
            runs=folders,
            seeds=[run.seed for run in group],
            scores={title: [run.value(metric) for run in group] for title, metric in titles.items()},
            train_s=median.facts.seconds,
            weights=median.facts.weights,
            difference=_compare(median, reference, deciding.name, by_weight)
            if is_comparable and median is not reference
            else None,
        )
        settings.append(setting)
    rows = len(reference.outputs.labels)
    return RunComparison(split=reference.split, rows=rows, against=names[chosen[0]], settings=settings, alerts=alerts)


def read_runs(entries: Sequence[str], split: str | None = None) -> tuple[list[ComparedRun], dict[str, str]]:
    """Return the runs of folders and globs, each once, and dict folder → why it holds no finished run."""
    runs, refused = dict[Path, ComparedRun](), dict[str, str]()
    for entry in entries:
        folders = [path for path in sorted(glob(entry, recursive=True)) if Path(path).is_dir()]  # noqa: PTH207, also absolute
        for folder in dict.fromkeys(Path(path).resolve() for path in folders or [entry]):
            try:
                runs[folder] = _read_finished(folder, split)
            except InputError as error:
                refused[shown_path(folder)] = error.problem
    if not runs:
        problem = next(iter(refused.values()), "holds no finished run")
        raise InputError(f"runs=[{','.join(entries)}]", problem, "name folders of finished runs")
    return list(runs.values()), refused


def _read_finished(folder: Path, split: str | None) -> ComparedRun:
    """Read a run. Raises InputError if it failed or is not finished, or if `split` does not judge its model."""
    if (failure := folder / FAILURE).is_file():
        raise InputError(folder, failure.read_text(encoding="utf-8"))
    models, facts, settings = read_run(folder)
    scores = models[-1]
    try:
        result = RunResult.from_dict(read_json(folder / "metrics.json"))
        split, seed = split or result.split, int(settings["seed"])
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise InputError(folder, f"has no metrics of a finished run ({first_line(error)})", "train again") from None
    if split in ("train", THRESHOLD) or split not in result.splits or split not in scores.splits:
        raise InputError(folder, f"has no rows of {split} that judge its model", "name another split")
    own = {key: part for key, part in settings.items() if key not in (*NOT_OF_FIT, "seed")}
    # The machine chooses a number of threads where the user gives none.
    keys = {key: value for key, value in flat_keys(own).items() if key != "runtime.threads"}
    return ComparedRun(folder, seed, keys, scores, facts, result, split)


def matched(rows: ScoredRows, others: ScoredRows) -> np.ndarray:
    """Return the position (N,) of each row among other rows by its id, -1 for a row that they lack."""
    assert rows.ids is not None and others.ids is not None, "rows of a file"
    if rows.ids.equals(others.ids):  # ids may repeat
        return np.arange(len(rows.ids))
    return np.array(pc.fill_null(pc.index_in(rows.ids, value_set=others.ids), -1)).astype(np.int64)


def has_same_rows(run: ComparedRun, other: ComparedRun) -> bool:
    """Return True if two runs have the same rows, labels, classes and split. The order of the rows may differ."""
    facts = [(one.scores.classes, one.scores.positive, one.split) for one in (run, other)]
    places, labels = matched(run.outputs, other.outputs), other.outputs.labels
    is_same = facts[0] == facts[1] and np.array_equal(np.sort(places), np.arange(len(labels)))
    return bool(is_same and (run.outputs.labels == labels[places]).all())


def _has_weights_of(run: ComparedRun, other: ComparedRun) -> bool:
    weights, others = run.outputs.weights, other.outputs.weights
    if weights is None or others is None or not has_same_rows(run, other):
        return weights is not None and others is not None
    return np.array_equal(weights, others[matched(run.outputs, other.outputs)])


def _groups(runs: Sequence[ComparedRun], deciding: ShownMetric) -> list[list[ComparedRun]]:
    """Return the runs of each setting from the lowest score to the highest, the best setting first."""
    groups: list[list[ComparedRun]] = []
    for run in sorted(runs, key=lambda run: run.value(deciding) or 0):
        alike = (group for group in groups if group[0].settings == run.settings)
        group = next((group for group in alike if has_same_rows(run, group[0])), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return sorted(groups, key=lambda group: -fmean(run.value(deciding) or 0 for run in group))


def _compare(run: ComparedRun, reference: ComparedRun, monitor: str, by_weight: bool) -> Comparison:
    """Return the comparison that decides between two runs on the same rows, by the groups that one of them knows."""
    base = run if reference.outputs.groups is None else reference
    rows, other = (one.outputs.take(matched(base.outputs, one.outputs)) for one in (run, reference))
    rows = rows._replace(groups=base.outputs.groups, weights=rows.weights if by_weight else None)
    return compare_rows(rows, run.result.decision, other, reference.result.decision, base.scores, monitor)[0]


def show_comparison(comparison: RunComparison) -> Document:
    """Print the table of settings and the alerts, and return them as a page."""
    deciding, *others = comparison.settings[0].scores
    headings = [deciding, "difference", "between", "range of seeds", "runs", *others, "training", "weights"]
    columns = {"setting": "text", f"against {shortened(comparison.against, 40)}": "text", **score_columns(headings)}
    title = f"Comparison on {comparison.rows:,} rows of {comparison.split}"
    section = Section(title, [Table(columns, list(map(_row, comparison.settings))), Text(NOTE, soft=True)])
    show_section(section)
    alerts = [f"{folder}: {problem}" for folder, problem in comparison.alerts.items()]
    for line in alerts:
        show_note(line)
    return Document("Comparison of runs", title, [section], alerts=alerts)


def _row(setting: Setting) -> list[object]:
    """Return the cells of a setting in the table."""
    word, compared = NO_VALUE, setting.difference
    if compared is not None:
        word = "better" if compared.is_better else "worse" if compared.is_worse else "not shown to differ"
    scores = [[value for value in values if value is not None] for values in setting.scores.values()]
    first, *others = (f"{fmean(values):.3f}" if values else NO_VALUE for values in scores)
    spread = interval_cell((min(scores[0]), max(scores[0])) if len(scores[0]) > 1 else None)
    training = NO_VALUE if setting.train_s is None else duration_text(setting.train_s)
    weights = NO_VALUE if setting.weights is None else number(setting.weights)
    cells = difference_cells(compared)
    return [shortened(setting.setting, 120), word, first, *cells, spread, len(setting.runs), *others, training, weights]


def show_runs(pattern: str, against: str | None = None, split: str | None = None) -> bool:
    """Print the comparison of the finished runs of a glob (see `compare_runs`), nothing if there are fewer than two.

    Returns True if it was printed.
    """
    try:
        comparison = compare_runs([pattern], against, split)
    except InputError:
        return False
    if is_shown := sum(len(setting.runs) for setting in comparison.settings) > 1:
        show_comparison(comparison)
    return is_shown
