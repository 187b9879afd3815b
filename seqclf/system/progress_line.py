"""Text of a progress line, which fits into the width of a terminal."""

from __future__ import annotations

import unicodedata

BAR_WIDTHS = (6, 30)  # cells of the narrowest bar that is shown, and of the widest
NOTEBOOK_WIDTH = 100


class Estimate(int):
    """A total that is only about right. Lines round it and say so."""


def notebook_width() -> int:
    """Return the width of a line in the output of a notebook, which has no terminal to ask."""
    return NOTEBOOK_WIDTH


def progress_line(
    title: str,
    completed: float,
    total: float | None,
    unit: str,
    seconds: float,
    share: float | None,
    note: str,
    width: int,
) -> str:
    """Return title, bar, share, count, rate, note and time left, shortened to less than `width` cells.

    `share`: of the work, where `completed` and `total` do not tell it. Without a total, the line has the time so far.

    >>> progress_line("reading", 250, 1000, "rows", 5.0, None, "", width=80)
    'reading  ━━━━━━──────────────────  25%  250 of 1,000 rows  50 rows/s  0:15 left'
    >>> progress_line("reading", 250, None, "rows", 5.0, None, "", width=80)
    'reading  250 rows  50 rows/s  0:05'
    >>> progress_line("reading", 103_379, Estimate(206_758), "rows", 5.0, None, "", width=60)
    'reading  50%  103,379 of about 207,000 rows  0:05 left'
    """
    if share is None and total:
        share = completed / total
    # An estimated total may be exceeded, and a library may report a negative share before it begins.
    known = share is not None and 0 < share <= 1
    parts = [f"{100 * share:.0f}%"] if known and share is not None else []
    if unit:
        of = f" of {_total_text(total)}" if total and known else ""
        parts += [f"{completed:,.0f}{of} {unit}"] if completed else []
        parts += [rate_text(completed, unit, seconds)] if completed else []
    parts += [note] if note else []
    parts.append(f"{clock(seconds / share - seconds)} left" if known and share else clock(seconds))
    title = _printable(title)
    free = max(0, width - 1)
    # The parts in the middle go first, then the end of the title.
    while len(parts) > 2 and _cells(title) + sum(2 + _cells(part) for part in parts) > free:
        del parts[-2]
    room = free - _cells(title) - sum(2 + _cells(part) for part in parts)
    line = title
    if known and share is not None and room >= 2 + BAR_WIDTHS[0]:
        cells = min(BAR_WIDTHS[1], room - 2)
        full = int(share * cells)
        line += "  " + "━" * full + "─" * (cells - full)
    return _cut("  ".join([line, *parts]), free)


def _total_text(total: float) -> str:
    if not isinstance(total, Estimate):
        return f"{total:,.0f}"
    return f"about {float(f'{total:.3g}'):,.0f}"


def summary_line(title: str, completed: float, unit: str, seconds: float) -> str:
    """Return what is left of a stage that has ended.

    >>> summary_line("reading train.csv", 1000, "rows", 5.0)
    'reading train.csv: 1,000 rows in 5.0 s (200 rows/s)'
    >>> summary_line("loading PyTorch", 0, "", 75.0)
    'loading PyTorch: 1:15 min'
    """
    duration = f"{clock(seconds)} min" if seconds >= 60 else f"{seconds:.1f} s"
    if seconds >= 3600:
        duration = f"{clock(seconds)} h"
    if not completed or not unit:
        return f"{_printable(title)}: {duration}"
    return f"{_printable(title)}: {completed:,.0f} {unit} in {duration} ({rate_text(completed, unit, seconds)})"


def rate_text(completed: float, unit: str, seconds: float) -> str:
    """Return units per second, or seconds per unit where that is the larger number.

    >>> rate_text(1000, "rows", 2.0), rate_text(3, "trials", 60.0)
    ('500 rows/s', '20 s per trial')
    """
    rate = completed / max(seconds, 1e-9)
    if rate < 0.5:
        return f"{1 / rate:.0f} s per {unit.removesuffix('s')}"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s"


def clock(seconds: float) -> str:
    """Format a duration.

    >>> clock(5), clock(75), clock(3675)
    ('0:05', '1:15', '1:01:15')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _cells(text: str) -> int:
    """Return the number of terminal cells, of which wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def _cut(text: str, most: int) -> str:
    while text and _cells(text) > most:
        text = text[:-1]
    return text
