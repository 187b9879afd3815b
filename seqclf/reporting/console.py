"""Terminal output: the dataset, epochs and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import MAIN_METRICS, ClassificationMetrics
from seqclf.evaluation.results import BaselineMetrics, SplitMetrics
from seqclf.reporting.formatting import warning_lines
from seqclf.reporting.guarantees import decision_lines
from seqclf.reporting.run.summary import dependence

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
POSITIVE_METRICS = ("recall", "precision", "f1", "average_precision", "auroc")


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
            console.print(f"  {name}: dropped {count} rows that share a sequence or an id with an earlier split")


def show_warnings(survey: DatasetSurvey) -> None:
    """Print the warnings of a survey, leaks included. No other function prints a warning about the data."""
    for line in warning_lines(survey.warnings):
        console.print(f"data: {line}", style="yellow", soft_wrap=True)


def show_note(text: str) -> None:
    """Print one line about something that was left out, while the command goes on."""
    console.print(text, style="yellow", soft_wrap=True)


def show_epoch(row: EpochRow, monitor: str) -> None:
    """Print a line per epoch. `monitor`: the validation metric that decides which one is best."""
    scores = row.scores
    parts = [f"epoch {row.epoch:>3}"]
    for split in ("train", "validation"):
        if f"{split}/loss" in scores:  # an epoch may have no validation
            parts.append(f"{split} loss {scores[f'{split}/loss']:.4f} recall {scores[f'{split}/recall']:.4f}")
    if "validation/accuracy" in scores:
        names = [name for name in dict.fromkeys(["accuracy", monitor]) if name not in ("loss", "recall")]
        values = {name.replace("_", " "): scores.get(f"validation/{name}") for name in names}
        parts += [f"{name} {value:.4f}" for name, value in values.items() if value is not None]
    parts.append(f"{row.speed.tokens_per_s:,.0f} tokens/s  {row.observation}")
    console.print("  ".join(parts), soft_wrap=True)


def show_scores(metrics: Mapping[str, SplitMetrics], baseline: BaselineMetrics | None = None) -> None:
    """Print the verdict: main metrics by split, recall by class of the last split, and its alarms.

    `baseline`: the order-blind model on the last split.
    """
    table = Table(title="Verdict", title_justify="left")
    table.add_column("split")
    for name in ("rows", *MAIN_METRICS):
        table.add_column(name, justify="right")
    for split, result in metrics.items():
        table.add_row(split, str(result.rows), *_main_metrics(result))
    split, result = list(metrics.items())[-1]
    if baseline is not None:
        table.add_row("order-blind", str(baseline.rows), *_main_metrics(baseline), style="dim")
    console.print(table)
    _show_positive(split, result)
    if baseline is not None:
        _show_positive(f"order-blind ({baseline.model})", baseline)
    recalls = sorted((value, label) for label, value in result.recall_by_class.items() if value is not None)
    lowest = ", ".join(f"{label} {value:.3f}" for value, label in recalls[:MOST_CLASSES])
    console.print(f"{split}, recall by class, the lowest first: {lowest}")
    if (caution := dependence(result, split)) is not None:
        console.print(caution, style="yellow", soft_wrap=True)
    for alarm in result.alarms:
        console.print(f"ALARM on {split}: {alarm.text}. Try {alarm.remedy}", style="bold red", soft_wrap=True)


def _main_metrics(metrics: ClassificationMetrics) -> list[str]:
    return [f"{getattr(metrics, name):.4f}" for name in MAIN_METRICS]


def _show_positive(title: str, metrics: ClassificationMetrics) -> None:
    positive = metrics.positive
    if positive is not None:
        values = {name: getattr(positive, name) for name in POSITIVE_METRICS}
        text = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if value is not None)
        console.print(f"{title}, positive label {positive.label}: {text}")


def show_decision(decision: Decision, metrics: SplitMetrics, split: str) -> None:
    """Print the targets of a decision, their evidence, and the metrics of `split`. Silent for an argmax decision."""
    for line in decision_lines(decision, metrics, split):
        console.print(f"decision: {line}", soft_wrap=True)
