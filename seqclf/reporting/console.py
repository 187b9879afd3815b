"""What a person reads in the terminal: data, epochs, verdict."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from seqclf.data.splitting.leakage import leak_lines
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.reporting.guarantees import decision_lines
from seqclf.reporting.run.summary import dependence

# Labels and paths may look like markup.
console = Console(stderr=True, highlight=False, markup=False, emoji=False)
MOST_CLASSES = 25
MOST_COLUMNS = 4
POSITIVE = ("recall", "precision", "f1", "average_precision", "auroc")


def show_dataset(dataset: Dataset) -> None:
    """Fields, classes and rows, with everything that was refused, cut or unknown."""
    made = "from the cache" if dataset.reused else "prepared"
    console.print(f"data: {made} in {dataset.folder}", soft_wrap=True)
    for field in dataset.schema.fields:
        many = len(field.columns) > MOST_COLUMNS
        columns = f"{len(field.columns)} columns" if many else f"column '{field.column}'"
        console.print(f"  field {field.name}: {field.kind}, {columns}, {field.describe()}".rstrip(", "), soft_wrap=True)
    if dataset.schema.ignored:
        console.print(f"  ignored columns: {', '.join(dataset.schema.ignored)}")
    shown = ", ".join(dataset.classes[:MOST_CLASSES]) + (", …" if len(dataset.classes) > MOST_CLASSES else "")
    positive = f"; positive: {dataset.positive}" if dataset.positive else ""
    console.print(f"  {len(dataset.classes)} classes: {shown}{positive}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("split", "rows", "refused", "cut", "tokens", "unknown", "length min/mean/max"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for name, counts in dataset.report.items():
        lengths = dataset.splits[name].sequences.lengths
        unknown = f"{counts['unknown_tokens'] / max(1, counts['tokens']):.1%}"
        spread = f"{lengths.min()}/{lengths.mean():.1f}/{lengths.max()}"
        table.add_row(name, *(str(counts[key]) for key in ("used", "refused", "truncated", "tokens")), unknown, spread)
    console.print(table)
    if any(counts["refused"] for counts in dataset.report.values()):
        console.print(f"  refused, and why: {dataset.folder / 'quarantine.jsonl'}", soft_wrap=True)
    for name, counts in dataset.report.items():
        if counts.get("hidden_files"):
            console.print(f"  {name}: hidden files (names that begin with a dot), not read: {counts['hidden_files']}")
    for line in leak_lines(dataset.leaks):
        warn(line)
    for name, count in dataset.leaks["dropped"].items():
        if count:
            warn(f"dropped {count} such rows of {name} (data.split.on_leak=drop)")


def warn(line: str) -> None:
    """Something about the data that should be looked at."""
    console.print(f"data: {line}", style="yellow", soft_wrap=True)


def show_epoch(row: dict[str, Any], monitor: str) -> None:
    """One line per epoch; `monitor`: the validation metric that decides which one is best."""
    parts = [f"epoch {row['epoch']:>3}"]
    for split in ("train", "validation"):
        if f"{split}/loss" in row:
            parts.append(f"{split} loss {row[f'{split}/loss']:.4f} recall {row[f'{split}/recall']:.4f}")
    if "validation/accuracy" in row:
        names = [name for name in dict.fromkeys(["accuracy", monitor]) if name not in ("loss", "recall")]
        values = {name.replace("_", " "): row.get(f"validation/{name}") for name in names}
        parts += [f"{name} {value:.4f}" for name, value in values.items() if value is not None]
    parts.append(f"{row['tokens_per_s']:,.0f} steps/s  {row['observation']}")
    console.print("  ".join(parts), soft_wrap=True)


def show_scores(metrics: dict[str, dict[str, Any]], baseline: dict[str, Any] | None = None) -> None:
    """The table of the verdict: main metrics by split, then recall by class of the last split.

    `baseline`: the scores of an order-blind `model` on the last split, to stand beside.
    """
    table = Table(title="Verdict", title_justify="left")
    table.add_column("split")
    for name in ("rows", *MAIN_METRICS):
        table.add_column(name, justify="right")
    for split, found in metrics.items():
        table.add_row(split, str(found["rows"]), *(f"{found[name]:.4f}" for name in MAIN_METRICS))
    split, found = next(reversed(metrics.items()))
    if baseline is not None:
        values = (f"{baseline[name]:.4f}" for name in MAIN_METRICS)
        table.add_row("order-blind", str(baseline["rows"]), *values, style="dim")
    console.print(table)
    for who, scored in ((split, found), (f"order-blind ({baseline['model']})" if baseline else "", baseline)):
        if scored is not None and "positive" in scored:
            block = scored["positive"]
            parts = [f"{name} {block[name]:.4f}" for name in POSITIVE if block[name] is not None]
            console.print(f"{who}, positive label {block['label']}: {', '.join(parts)}")
    rows = sorted(found["recall_by_class"].items(), key=lambda item: 2.0 if item[1] is None else item[1])
    shown = [f"{label} {value:.3f}" for label, value in rows[:MOST_CLASSES] if value is not None]
    console.print(f"{split}, recall by class, the worst first: {', '.join(shown)}")
    if (caution := dependence(found, split)) is not None:
        console.print(caution, style="yellow", soft_wrap=True)
    for alarm in found["alarms"]:
        console.print(f"ALARM on {split}: {alarm['text']}. Try {alarm['remedy']}", style="bold red", soft_wrap=True)


def show_decision(decision: Decision, found: dict[str, Any], split: str) -> None:
    """What was promised, what stands behind it, and what `split` says to it; nothing where labels are just the most
    probable."""
    for line in decision_lines(decision, found, split):
        console.print(f"decision: {line}", soft_wrap=True)
