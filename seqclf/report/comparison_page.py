"""A comparison of runs as a document for the terminal and a page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from seqclf.documents.blocks import Document, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number
from seqclf.documents.terminal import show_document
from seqclf.errors import InputError
from seqclf.evaluation.uncertainty.intervals import SIGNED, interval_text
from seqclf.report.run_comparison import RunComparison, Setting, compare_runs
from seqclf.report.score_table import interval_cell, score_columns
from seqclf.system.durations import duration_text

NOTE = (
    "Scores are means over the runs of a setting. A difference is that of the runs with the median scores of two "
    "settings, on the same rows; its 95% interval is about such rows, and not about other seeds. The best of several "
    "settings owes some of its score to chance: choose by split=validation, and judge by test."
)


def comparison_document(comparison: RunComparison) -> Document:
    """Return a comparison as a document: the table of settings and the list of runs."""
    settings, (deciding, *others) = comparison.settings, comparison.settings[0].scores
    headings = [deciding, "difference", "between", "range of seeds", "runs", *others, "training", "weights"]
    columns = {"setting": "text", f"against {comparison.against}": "text", **score_columns(headings)}
    table = Table(columns, [_row(setting) for setting in settings])
    runs = [
        [run, setting.setting, seed, _mean([value])]
        for setting in settings
        for run, seed, value in zip(setting.runs, setting.seeds, setting.scores[deciding], strict=True)
    ]
    listed = Table({"run": "text", "setting": "text", "seed": "number", deciding: "number"}, runs)
    title = f"Comparison on {comparison.rows:,} rows of {comparison.split}"
    other_rows = [f"{run}: {setting.other_rows}" for setting in settings if setting.other_rows for run in setting.runs]
    skipped = [f"{folder}: left out, {problem}" for folder, problem in comparison.skipped.items()]
    sections = [Section("Settings", [table, Text(NOTE, soft=True)], title), Section("Runs", [listed])]
    return Document("Comparison of runs", title, sections, alerts=[*other_rows, *skipped])


def _row(setting: Setting) -> list[object]:
    """Return the cells of a setting in the table."""
    compared, (spread, *_) = setting.difference, setting.scores.values()
    if compared is None:
        word, cells = "other rows" if setting.other_rows else NO_VALUE, [NO_VALUE, NO_VALUE]
    else:
        word = "better" if compared.is_better else "worse" if compared.is_worse else "not shown to differ"
        interval = None if compared.too_few_groups else (compared.low, compared.high)
        cells = [SIGNED(compared.difference), interval_text(interval, SIGNED)]
    first, *further = map(_mean, setting.scores.values())
    known = [value for value in spread if value is not None]
    cells.append(interval_cell((min(known), max(known)) if len(known) > 1 else None))
    training = NO_VALUE if setting.train_s is None else duration_text(setting.train_s)
    weights = NO_VALUE if setting.weights is None else number(setting.weights)
    return [setting.setting, word, first, *cells, len(spread), *further, training, weights]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.3f}" if known else NO_VALUE


def show_comparison(entries: Sequence[str], against: str | None = None, split: str | None = None) -> None:
    """Print the comparison of the finished runs of globs, nothing if there are fewer than two (see `compare_runs`)."""
    try:
        comparison = compare_runs(entries, against, split)
    except InputError:
        return
    if sum(len(setting.runs) for setting in comparison.settings) > 1:
        show_document(comparison_document(comparison))
