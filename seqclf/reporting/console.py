"""Terminal output: the dataset, epochs and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table

from seqclf.config.override_text import argument
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.metric_names import metric_title
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics
from seqclf.reporting.formatting import shortened, warning_lines
from seqclf.reporting.run.summary import LONGEST_LABEL, score_table
from seqclf.reporting.verdict import Verdict

if TYPE_CHECKING:  # `evaluate` prints its scores without loading the survey or PyTorch
    from seqclf.survey.survey import DatasetSurvey
    from seqclf.training.epoch_record import EpochRow


def make_console() -> Console:
    """Return the console of all output: on stderr, or in a notebook, where stderr is red, as plain text on stdout.

    rich's own form for notebooks does not wrap lines, and is a separate output for each.
    """
    in_notebook = Console().is_jupyter
    # Labels and paths may look like markup.
    return Console(
        stderr=not in_notebook,
        force_jupyter=False,
        force_terminal=False if in_notebook else None,  # its stdout claims to be a terminal, but shows no bars
        color_system="standard" if in_notebook else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


console = make_console()
MOST_CLASSES = 25
MOST_COLUMNS = 4
SHORTEST_LABEL = 4  # in the table of scores, however narrow the terminal is


def show_dataset(dataset: Dataset) -> None:
    """Print fields, classes and rows, with everything that was refused, truncated, dropped or unknown."""
    made = "from the cache" if dataset.reused else "prepared"
    console.print(f"data: {made} in {dataset.folder}", soft_wrap=True)
    for encoder in dataset.encoders.values():
        field = encoder.field
        many = len(field.columns) > MOST_COLUMNS
        columns = f"{len(field.columns)} columns" if many else f"column '{field.column}'"
        line = f"  field {field.name}: {field.kind}, {columns}, {encoder.describe()}"
        console.print(line.rstrip(", "), soft_wrap=True)
    if dataset.schema.ignored:
        console.print(f"  ignored columns: {', '.join(dataset.schema.ignored)}")
    shown = ", ".join(dataset.classes[:MOST_CLASSES]) + (", …" if len(dataset.classes) > MOST_CLASSES else "")
    positive = f"; positive: {dataset.positive}" if dataset.positive else ""
    console.print(f"  {len(dataset.classes)} classes: {shown}{positive}")
    if dataset.positive_is_guessed:
        other = next(label for label in dataset.classes if label != dataset.positive)
        chosen, opposite = (argument("data.positive", str(label)) for label in (dataset.positive, other))
        line = f"  {dataset.positive} is a guess, the rarer label in train: confirm it by {chosen}, or set {opposite}"
        console.print(line, soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("split", "rows", "refused", "truncated", "tokens", "unknown", "length min/mean/max"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for name, counts in dataset.report.items():
        lengths = dataset.splits[name].sequences.lengths
        unknown = f"{counts.unknown_tokens / max(1, counts.tokens):.1%}"
        spread = f"{lengths.min()}/{lengths.mean():.1f}/{lengths.max()}"
        figures = (counts.used, counts.refused, counts.truncated, counts.tokens)
        table.add_row(name, *map(str, figures), unknown, spread)
    console.print(table)
    if any(counts.refused for counts in dataset.report.values()):
        console.print(f"  refused rows and reasons: {dataset.folder / 'quarantine.jsonl'}", soft_wrap=True)
    for name, counts in dataset.report.items():
        if counts.hidden_files:
            console.print(f"  {name}: hidden files (names that begin with a dot), not read: {counts.hidden_files}")
    for name, count in dataset.leaks.dropped.items():
        if count:
            console.print(f"  {name}: dropped {count} rows that share a sequence or an id with another split")


def show_warnings(survey: DatasetSurvey) -> None:
    """Print the warnings of a survey, leaks included. No other function prints a warning about the data."""
    for line in warning_lines(survey.warnings):
        console.print(f"data: {line}", style="yellow", soft_wrap=True)


def show_note(text: str) -> None:
    """Print one line about something that was left out, while the command goes on."""
    console.print(text, style="yellow", soft_wrap=True)


def show_epoch(row: EpochRow, monitor: str, positive: tuple[str, float | None] | None) -> None:
    """Print a line per epoch, counted from 1.

    `monitor`: the validation metric that decides which one is best. `positive`: the positive label and its recall on
    validation, None without one.
    """
    scores = row.scores
    parts = [f"epoch {row.epoch + 1:>3}"]
    for split in ("train", "validation"):
        if f"{split}/loss" in scores:  # an epoch may have no validation
            parts.append(f"{split} loss {scores[f'{split}/loss']:.4f}  {_scores_text(split, ['recall'], scores)}")
    if "validation/accuracy" in scores:
        if positive is not None and positive[1] is not None:
            parts.append(f"{metric_title('recall', shortened(positive[0], 20))} {positive[1]:.4f}")
        names = [name for name in dict.fromkeys(["accuracy", monitor]) if name not in ("loss", "recall")]
        parts.append(_scores_text("validation", names, scores))
    parts.append(f"{row.speed.tokens_per_s:,.0f} tokens/s  {row.observation}")
    console.print("  ".join(parts), soft_wrap=True)


def _scores_text(split: str, names: Sequence[str], scores: Mapping[str, float]) -> str:
    """The scores of a split that are defined."""
    values = {metric_title(name): scores.get(f"{split}/{name}") for name in names}
    return "  ".join(f"{title} {value:.4f}" for title, value in values.items() if value is not None)


def show_verdict(
    verdict: Verdict, metrics: Mapping[str, SplitMetrics], baseline: BaselineMetrics | None = None
) -> None:
    """Print the verdict: its sentences, the metrics by split, the alarms of the last split, and the next step.

    `baseline`: the order-blind model on the last split.
    """
    console.print("Verdict", style="bold")
    for sentence in (verdict.result, verdict.comparison, verdict.promise):
        if sentence is not None:
            console.print(sentence, soft_wrap=True)
    if verdict.caution is not None:
        console.print(verdict.caution, style="yellow", soft_wrap=True)
    split, result = list(metrics.items())[-1]
    console.print(verdict.counts, soft_wrap=True)
    for line in score_lines(metrics, baseline, console.width):
        console.print(line, soft_wrap=True)
    recalls = sorted((value, label) for label, value in result.recall_by_class.items() if value is not None)
    lowest = ", ".join(f"{label} {value:.3f}" for value, label in recalls[:MOST_CLASSES])
    console.print(f"{split}, recall by class, the lowest first: {lowest}", soft_wrap=True)
    for alarm in result.alarms:
        console.print(f"ALARM on {split}: {alarm.text}. Try {alarm.remedy}", style="bold red", soft_wrap=True)
    if verdict.next_step is not None:
        console.print(verdict.next_step, soft_wrap=True)


def score_lines(metrics: Mapping[str, SplitMetrics], baseline: BaselineMetrics | None, width: int) -> list[str]:
    """Return the table of scores as lines of at most `width` columns, if that is at all possible.

    The other splits are left out first, then labels are shortened. Numbers are never cut or wrapped.
    """
    wide = score_table(metrics, baseline, short_headings=True)
    lines = _aligned(*wide)
    for longest_label in range(LONGEST_LABEL, SHORTEST_LABEL - 1, -1):
        if cell_len(lines[0]) <= width:
            break
        narrow = score_table(metrics, baseline, short_headings=True, other_splits=False, longest_label=longest_label)
        lines = _aligned(*narrow)
    return lines


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for the headings and one for each row. The first column is left-aligned, the others right-aligned."""
    table = [["", *headings], *rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, *cells in table:
        padded = [" " * (width - cell_len(cell)) + cell for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([set_cell_size(name, widths[0]), *padded]))
    return lines
