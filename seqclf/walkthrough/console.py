"""Terminal output of a walkthrough: a few lines for each stage, which fit a narrow window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from textwrap import wrap

import numpy as np
from rich.cells import cell_len

from seqclf.documents.formatting import head_and_tail, percent, shortened
from seqclf.documents.terminal import console
from seqclf.walkthrough.content import (
    MAX_CLASSES,
    MAX_EPOCHS,
    WalkthroughPage,
    bundle_text,
    counted,
    epoch_rows,
    row_name,
    scored_split,
    shape_text,
)
from seqclf.walkthrough.stages import (
    ROW_NAME,
    ClassScores,
    Content,
    EncodedRows,
    MemberScores,
    PaddedBatch,
    RawRows,
    RowVectors,
    TokenPairs,
    TokenScores,
    TokenVectors,
    TreeLevels,
    channel_ranges,
)

HEIGHTS = "▁▂▃▄▅▆▇█"
PADDING = "░"
GAP = "  "
MAX_ROWS, MAX_ALL_ROWS = 4, 12  # with a line for each token, and with a line for each row
MAX_TOKENS = 5
MAX_TOKEN_CHARACTERS, MAX_NAME_CHARACTERS = 12, 16
FIRST_LEVELS, LAST_LEVELS = 8, 3  # lines of the levels of trees


def show_walkthrough(page: WalkthroughPage) -> None:
    """Print every stage, and the epochs of the training where they are known."""
    for reason in page.refused:
        console.print(f"left out: {reason}", style="yellow", soft_wrap=True)
    for number, stage in enumerate(page.stages, start=1):
        console.print(f"\n{number} {stage.title}{GAP}{shape_text(stage)}".rstrip(), style="bold", soft_wrap=True)
        for line in content_lines(stage.content, max(console.width, 40)):
            console.print(line.rstrip(), soft_wrap=True)
        for line in wrap(stage.note, max(console.width, 40), initial_indent=GAP, subsequent_indent=GAP):
            console.print(line, soft_wrap=True)
    if page.history:
        console.print(f"\nTraining{GAP}scores on {scored_split(page.history)} after each epoch", style="bold")
        for line in epoch_lines(page):
            console.print(line)
    if page.bundle_error is not None:
        console.print(f"\nthe bundle {bundle_text(page.bundle_error)}")


def epoch_lines(page: WalkthroughPage) -> list[str]:
    """Return the table of epochs."""
    first, left_out, last = head_and_tail(epoch_rows(page.history), MAX_EPOCHS)
    gap = [["…", f"{left_out} more", "", ""]] if left_out else []
    rows = [["Epoch", "Loss", "Accuracy", "Recall"], *first, *gap, *last]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


@singledispatch
def content_lines(content: Content, width: int) -> Iterator[str]:
    """Yield the lines of a stage, of at most `width` columns."""
    raise NotImplementedError(type(content))


@content_lines.register
def _(content: RawRows, width: int) -> Iterator[str]:
    shown = list(zip(content.rows, content.labels, strict=True))[:MAX_ALL_ROWS]
    names = [row_name(number, row[ROW_NAME], MAX_NAME_CHARACTERS) for number, (row, _) in enumerate(shown, start=1)]
    widest = max(map(cell_len, names))
    for name, (row, label) in zip(names, shown, strict=True):
        cells = [f"{name} {text}" if len(row) > 2 else text for name, text in list(row.items())[1:]]
        is_label = "" if label is None else f"{GAP}is {shortened(label, MAX_TOKEN_CHARACTERS)}"
        start = f"{GAP}{name}{' ' * (widest - cell_len(name))}{GAP}"
        room = max(10, width - cell_len(start + is_label))
        yield _clipped(start + shortened("; ".join(cells), room) + is_label, width)
    yield from _more_rows(len(content.rows), MAX_ALL_ROWS)


@content_lines.register
def _(content: EncodedRows, width: int) -> Iterator[str]:
    for index, fields in enumerate(content.rows[:MAX_ALL_ROWS]):
        for field in fields:
            marks = [" unknown" if unknown else "" for unknown in field.unknown]
            parts = [
                f"{shortened(token, MAX_TOKEN_CHARACTERS) or '␣'}→{shortened(encoded, 2 * MAX_TOKEN_CHARACTERS)}{mark}"
                for token, encoded, mark in zip(field.tokens, field.encoded, marks, strict=True)
            ]
            name = f" {shortened(field.name, MAX_NAME_CHARACTERS)}" if len(fields) > 1 else ""
            yield _fitted(f"{GAP}{index + 1}{name}{GAP}", parts, width)
    yield from _more_rows(len(content.rows), MAX_ALL_ROWS)


@content_lines.register
def _(content: PaddedBatch, width: int) -> Iterator[str]:
    widest = min(MAX_TOKEN_CHARACTERS, max(max(map(len, row)) for row in content.cells))
    columns = len(content.active)
    if 10 + columns * (widest + 1) > width:
        columns = max(1, (width - 24) // (widest + 1))  # with room for the number of those left out
    more = f" … {len(content.active) - columns} more" if columns < len(content.active) else ""
    for index, row in enumerate(content.cells[:MAX_ALL_ROWS]):
        cells = [shortened(cell, widest) or PADDING * widest for cell in row[:columns]]
        yield f"{GAP}row {index + 1:<5}" + " ".join(f"{cell:>{widest}}" for cell in cells) + more
    yield from _more_rows(len(content.cells), MAX_ALL_ROWS)
    yield f"{GAP}active   " + " ".join(f"{count:>{widest}}" for count in content.active[:columns]) + more
    yield _fitted(f"{GAP}lengths  ", [str(length) for length in content.lengths], width)
    inputs = [f"{name} {kind} ({', '.join(map(str, shape))})" for name, kind, shape in content.inputs]
    yield _fitted(f"{GAP}inputs   ", inputs, width)


@content_lines.register
def _(content: TokenVectors, width: int) -> Iterator[str]:
    inside = np.arange(content.values.shape[1]) < content.lengths[:, None]
    largest = float(np.abs(content.values[inside][:, content.channels]).max())
    yield _channels_line(content, width)
    for row in range(min(MAX_ROWS, len(content.lengths))):
        length = int(content.lengths[row])
        for position in _ends(length):
            if position is None:
                yield f"{GAP}{'':3}…{GAP}{length - MAX_TOKENS + 1} more"
                continue
            token = str(position + 1) if content.tokens is None else content.tokens[row][position]
            name = (
                f"{row + 1 if position == 0 else '':<3}{shortened(token, MAX_TOKEN_CHARACTERS):<{MAX_TOKEN_CHARACTERS}}"
            )
            yield _strip(f"{GAP}{name}", content.values[row, position, content.channels], largest, width)
        if padding := content.values.shape[1] - length:
            yield f"{GAP}{'':3}{f'{padding} padding':<{MAX_TOKEN_CHARACTERS}} {PADDING * len(content.channels)}"
    yield from _more_rows(len(content.lengths), MAX_ROWS)


@content_lines.register
def _(content: TokenScores, width: int) -> Iterator[str]:
    for row in range(min(MAX_ALL_ROWS, len(content.lengths))):
        length = int(content.lengths[row])
        marked = None if content.marked is None else int(content.marked[row])
        tokens = None if content.tokens is None else content.tokens[row]
        shown = _strongest(content.values[row, :length], marked)
        start = f"{GAP}{row + 1}{GAP}{'' if len(shown) == length else 'largest: '}"
        parts = []
        for position in shown:
            mark = f" ← {content.marks[row]}" if position == marked else ""
            parts.append(f"{_named(tokens, position, length)} {content.values[row, position]:.3f}{mark}")
        yield _fitted(start, parts, width)
    yield from _more_rows(len(content.lengths), MAX_ALL_ROWS)


@content_lines.register
def _(content: TokenPairs, width: int) -> Iterator[str]:
    for row in range(min(MAX_ROWS, len(content.lengths))):
        length = int(content.lengths[row])
        tokens = None if content.tokens is None else content.tokens[row]
        for position in _ends(length):
            if position is None:
                yield f"{GAP}{'':3}…{GAP}{length - MAX_TOKENS + 1} more"
                continue
            shares = content.values[row, position, :length]
            best = np.argsort(-shares, kind="stable")[:MAX_CLASSES].tolist()
            read = [f"{_named(tokens, other, length)} {shares[other]:.3f}" for other in best]
            name = f"{row + 1 if position == 0 else '':<3}{_named(tokens, position, length)}"
            yield _fitted(f"{GAP}{name} reads ", read, width)
    yield from _more_rows(len(content.lengths), MAX_ROWS)


@content_lines.register
def _(content: TreeLevels, width: int) -> Iterator[str]:
    steps = list(enumerate(content.order, start=1))
    left_out = max(0, len(steps) - FIRST_LEVELS - LAST_LEVELS)
    columns, tokens = [], []
    for step, depth in [*steps[:FIRST_LEVELS], *steps[FIRST_LEVELS + left_out :]]:
        nodes = content.nodes(depth)
        count, trees = sum(map(len, nodes)), sum(map(bool, nodes))
        of_trees = f"{counted(count, 'node')} of {counted(trees, 'tree')}"
        columns.append([f"step {step}", "roots" if depth == 0 else f"depth {depth}", of_trees])
        names = [
            f"{row + 1}: " + " ".join(shortened(content.tokens[row][node], MAX_TOKEN_CHARACTERS) for node in of_row)
            for row, of_row in enumerate(nodes)
            if of_row
        ]
        tokens.append(names)
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    for index, (cells, names) in enumerate(zip(columns, tokens, strict=True)):
        if left_out and index == FIRST_LEVELS:
            yield f"{GAP}… {counted(left_out, 'more level')}"
        start = "".join(f"{GAP}{cell:<{size}}" for cell, size in zip(cells, widths, strict=True))
        yield _fitted(f"{start}{GAP}", names, width)


@content_lines.register
def _(content: RowVectors, width: int) -> Iterator[str]:
    largest = float(np.abs(content.values[:, content.channels]).max())
    yield _channels_line(content, width)
    for row in range(min(MAX_ALL_ROWS, len(content.values))):
        yield _strip(
            f"{GAP}{row + 1:<3}{'':{MAX_TOKEN_CHARACTERS}}", content.values[row, content.channels], largest, width
        )
    yield from _more_rows(len(content.values), MAX_ALL_ROWS)


@content_lines.register
def _(content: ClassScores, width: int) -> Iterator[str]:
    for row in range(min(MAX_ALL_ROWS, len(content.values))):
        values = content.values[row]
        best = np.argsort(-values, kind="stable")[:MAX_CLASSES]
        form = "{:.4f}" if content.are_probabilities else "{:+.2f}"
        parts = [
            f"{shortened(content.classes[index], MAX_TOKEN_CHARACTERS)} {form.format(values[index])}" for index in best
        ]
        if content.are_probabilities:
            predicted, label = content.classes[content.predicted[row]], content.labels[row]
            verdict = "" if label is None else " right" if label == predicted else f" wrong, is {shortened(label, 20)}"
            parts.insert(0, f"→ {shortened(predicted, 20)}{verdict}:")
        yield _fitted(f"{GAP}{row + 1}{GAP}", parts, width)
    if content.values.shape[1] > MAX_CLASSES:
        yield f"{GAP}the {MAX_CLASSES} largest of {content.values.shape[1]} classes"
    yield from _more_rows(len(content.values), MAX_ALL_ROWS)


@content_lines.register
def _(content: MemberScores, width: int) -> Iterator[str]:
    for row in range(min(MAX_ALL_ROWS, len(content.mean))):
        parts = []
        for name, scores in [*((str(i + 1), of) for i, of in enumerate(content.members)), ("mean", content.mean)]:
            best = int(scores[row].argmax())
            parts.append(
                f"{name}: {shortened(content.classes[best], MAX_TOKEN_CHARACTERS)} {percent(float(scores[row, best]))}"
            )
        yield _fitted(f"{GAP}{row + 1}{GAP}", parts, width)
    yield from _more_rows(len(content.mean), MAX_ALL_ROWS)


def strip(values: np.ndarray, largest: float) -> str:
    """Return a bar for each value: the lowest is -`largest`, the highest `largest`, and zero is in the middle.

    >>> strip(np.array([-1.0, 0.0, 1.0]), 1.0)
    '▁▅█'
    """
    shares = (values / (largest or 1.0) + 1) / 2
    return "".join(HEIGHTS[min(7, int(share * 8))] for share in np.clip(shares, 0, 1))


def _strip(start: str, values: np.ndarray, largest: float, width: int) -> str:
    """A line with the bars of some values, and as many of the numbers as fit."""
    line = f"{start} {strip(values, largest)}{GAP}"
    for value in values:
        if cell_len(line) + 6 > width:
            break
        line += f"{value:+.2f} "
    return line


def _channels_line(content: TokenVectors | RowVectors, width: int) -> str:
    count = content.values.shape[-1]
    return _fitted(f"{GAP}channels of {count:,}: ", [channel_ranges(content.channels, content.parts)], width)


def _fitted(start: str, parts: Sequence[str], width: int) -> str:
    """Join as many parts as fit, and count the others."""
    line, count = start, 0
    for part in parts:
        room = width - (0 if count + 1 == len(parts) else 10)
        if count and cell_len(line) + cell_len(part) > room:
            break
        line += part + GAP
        count += 1
    line = line.rstrip() if count == len(parts) else f"{line}… {len(parts) - count} more"
    return _clipped(line, width)


def _clipped(line: str, width: int) -> str:
    return line if cell_len(line) <= width else line[: width - 1] + "…"


def _strongest(values: np.ndarray, marked: int | None) -> list[int]:
    """Positions of all values in their order, or of many the largest ones first, with the marked one before them."""
    if len(values) <= 2 * MAX_TOKENS:
        return list(range(len(values)))
    best = np.argsort(-values, kind="stable")[:MAX_TOKENS].tolist()
    return best if marked is None else [marked, *(position for position in best if position != marked)]


def _named(tokens: Sequence[str] | None, position: int, length: int) -> str:
    """A token, with its position in a long row, where it may occur several times."""
    if tokens is None:
        return str(position + 1)
    text = shortened(tokens[position], MAX_TOKEN_CHARACTERS) or "␣"
    return text if length <= MAX_TOKENS else f"{text}[{position + 1}]"


def _ends(length: int) -> list[int | None]:
    """Positions of the first and last tokens, with None for those between them."""
    first, left_out, last = head_and_tail(range(length), MAX_TOKENS)
    return [*first, *([None] if left_out else []), *last]


def _more_rows(count: int, most: int) -> Iterator[str]:
    if count > most:
        yield f"{GAP}… {counted(count - most, 'more row')}"
