"""Terminal output about the dataset of a run."""

from __future__ import annotations

from rich.table import Table

from seqclf.data.storage.dataset import Dataset
from seqclf.documents.formatting import label_text
from seqclf.documents.terminal import MAX_CLASSES, console
from seqclf.settings.typed_text import argument

MAX_COLUMNS, MAX_FIELDS = 4, 12  # shown columns of a field, and fields


def show_dataset(dataset: Dataset) -> None:
    """Print fields, classes, row counts (also rejected, truncated, dropped) and unknown tokens of a dataset."""
    made = "from the cache" if dataset.reused else "prepared"
    console.print(f"data: {made} in {dataset.folder}", soft_wrap=True)
    for encoder in list(dataset.encoders.values())[:MAX_FIELDS]:
        field = encoder.field
        many = len(field.columns) > MAX_COLUMNS
        columns = f"{len(field.columns)} columns" if many else f"column '{field.column}'"
        line = f"  {'static ' * field.static}field {field.name}: {field.kind}, {columns}, {encoder.describe()}"
        console.print(line.rstrip(", "), soft_wrap=True)
    if len(dataset.encoders) > MAX_FIELDS:
        console.print(f"  and {len(dataset.encoders) - MAX_FIELDS} more fields")
    for note in dataset.notes:
        console.print(f"  {note}", soft_wrap=True, markup=False)
    shown = ", ".join(map(label_text, dataset.classes[:MAX_CLASSES]))
    shown += ", …" if len(dataset.classes) > MAX_CLASSES else ""
    positive = f"; positive: {dataset.positive}" if dataset.positive else ""
    console.print(f"  {len(dataset.classes)} classes: {shown}{positive}")
    show_guess(dataset)
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
    if lost := sum(counts.refused_events or 0 for counts in dataset.report.values()):
        events = sum(counts.events or 0 for counts in dataset.report.values())
        console.print(f"  {lost} of {events} events are refused, alone or with their sequence")
    if (quarantine := dataset.folder / "quarantine.jsonl").is_file():
        console.print(f"  refused rows and reasons: {quarantine}", soft_wrap=True)
    for name, count in dataset.leaks.dropped.items():
        if count:
            console.print(f"  {name}: dropped {count} rows that share a sequence or an id with another split")


def show_guess(dataset: Dataset) -> None:
    """Print that the positive label is a guess, if it is one."""
    if dataset.positive_is_guessed:
        other = next(label for label in dataset.classes if label != dataset.positive)
        chosen, opposite = (argument("data.positive", str(label)) for label in (dataset.positive, other))
        line = f"  {dataset.positive} is a guess, the rarer label in train: confirm it by {chosen}, or set {opposite}"
        console.print(line, soft_wrap=True)
