"""Figures of a report: learning curves, the precision-recall curve, and the reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from seqclf.documents.formatting import plain_number
from seqclf.documents.svg import FILL, INK, LINES, MARK, SOFT, render_svg
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.slices import Slice

MARGIN = {"left": 0.14, "right": 0.97, "bottom": 0.16, "top": 0.94}
MAX_POINTS = 300  # maximum number of points of one curve
CURVE_IN = 5.0  # width of a figure in inches
MAX_PIECES = 400  # pieces into which a long sequence is cut
MAX_CHANNELS = 40  # channels of a sequence that are drawn
CHARACTER = 0.014  # width of a character of a label, as a fraction of a figure
Band = tuple[int, float]  # position of a token, and its contribution as a fraction of the largest one
LOW, HIGH = (0.05, 0.55, 0.45), (0.6, 0.3, 0.75)  # colours of a heat map, for a page in light and in dark mode


def learning_curves(history: Sequence[Mapping[str, Any]], names: Sequence[str], best: int | None) -> Markup:
    """Draw each metric against the epoch: training scores in grey, validation scores in colour, `best` as a dashed
    line.

    Epochs count from 0 in `history` and `best`, but from 1 in the figure.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(names), 1, squeeze=False).ravel()
        epochs = [row["epoch"] + 1 for row in history]
        for axis, name in zip(axes, names, strict=True):
            for split, colour in (("train", SOFT), ("validation", FILL)):
                # An undefined score leaves a gap in the line, an epoch without validation does not.
                rows = [row for row in history if f"{split}/loss" in row]
                values = [_float(row.get(f"{split}/{name}")) for row in rows]
                marker = "o" if len(rows) < 3 else None
                axis.plot([row["epoch"] + 1 for row in rows], values, color=colour, linewidth=1.6, marker=marker)
            if best is not None:
                axis.axvline(best + 1, color=MARK, linewidth=1, linestyle=(0, (3, 2)))
            style_axes(axis, "epoch" if axis is axes[-1] else "", metric_title(name))
            axis.xaxis.get_major_locator().set_params(integer=True)
            margin = min(0.9, 0.04 * len(epochs))  # the margin is below 1, so that the axis has no tick at epoch 0
            axis.set_xlim(epochs[0] - margin, epochs[-1] + margin)
            if name != "loss":
                axis.set_ylim(top=1.0)
        figure.subplots_adjust(bottom=0.24 / len(names), left=MARGIN["left"], right=0.98, top=0.96, hspace=0.25)

    return render_svg(draw, CURVE_IN, 2.1 * len(names))


def period_recall(part: Slice) -> float | None:
    """Return the recall of the positive label, None without such rows, or macro recall."""
    return part.recall if part.positive is None else part.positive.recall


def period_share(part: Slice) -> float | None:
    """Return the fraction of rows of the positive label."""
    return None if part.positive is None else part.positive.rows / part.rows


def scores_over_time(periods: Sequence[Slice], label: str | None) -> Markup:
    """Draw recall in colour, and the mean probability of `label` in grey with its true share dashed, by period."""

    def draw(figure: Any) -> None:
        axis, places = figure.subplots(), range(len(periods))
        marker = "o" if len(periods) < 30 else None
        lines = [([period_recall(part) for part in periods], FILL, "-")]
        if label is not None:
            lines += [
                ([part.mean_score for part in periods], SOFT, "-"),
                ([period_share(part) for part in periods], SOFT, "--"),
            ]
        for values, colour, style in lines:
            axis.plot(places, list(map(_float, values)), color=colour, linewidth=1.6, linestyle=style, marker=marker)
        style_axes(axis, "", "macro recall" if label is None else f"recall, P({label}), share")
        shown = sorted({*range(0, len(periods), max(1, len(periods) // 6))})
        axis.set_xticks(shown, [periods[at].title for at in shown], rotation=30, ha="right")
        axis.set_ylim(0, 1.02)
        figure.subplots_adjust(**{**MARGIN, "bottom": 0.3})

    return render_svg(draw, CURVE_IN, 0.5 * CURVE_IN)


def precision_recall(truth: np.ndarray, score: np.ndarray) -> Markup:
    """Draw a precision-recall curve. `truth`: (N,) bool. `score`: (N,).

    The axes run from 0 to 1 and fill the box `MARGIN`, so that the page can place a dot on the curve.
    """
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(truth, score)
    # Draw only the points just before and after a change of recall. Nearly all other points lie at thresholds where
    # almost every row is an alert.
    changes = np.flatnonzero(np.diff(recall))
    corners = np.unique([0, *changes, *(changes + 1), len(recall) - 1])
    count = len(corners)
    visible = corners[np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        axis.plot(recall[visible], precision[visible], color=FILL, linewidth=1.8, drawstyle="steps-post")
        axis.axhline(truth.mean(), color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
        style_axes(axis, "recall", "precision")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        figure.subplots_adjust(**MARGIN)

    return render_svg(draw, CURVE_IN, 0.72 * CURVE_IN)


def sequence_chart(names: Sequence[str], values: np.ndarray, scaled: np.ndarray, bands: Sequence[Band]) -> Markup:
    """Draw the numbers of a sequence: lines in the units of the data, or a heat map for more channels than `LINES`.

    The heat map shows scaled values, with ranges in the units of the data. `names`: of W channels. `values`: (T, W),
    NaN where missing. `scaled`: (T, W). `bands`: contributions, drawn as shades.
    """
    step, width = -(-len(values) // MAX_PIECES), min(len(names), MAX_CHANNELS)
    is_heat = len(names) > len(LINES)
    draw_values, height_in = (_draw_heat, 0.7 + 0.16 * width) if is_heat else (_draw_lines, 1.8)
    bottom, height, opacity = (1, 0.06, 1.0) if is_heat else (0, 1, 0.4)  # the cells of a heat map would hide a band

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        colours = [(MARK if share > 0 else FILL, opacity * abs(share)) for _, share in bands]
        spans, units = [(position + 0.5, 1) for position, _ in bands], axis.get_xaxis_transform()
        axis.broken_barh(spans, (bottom, height), facecolors=colours, transform=units, clip_on=False)
        margins = draw_values(axis, names[:width], values[:, :width], scaled[:, :width], step)
        style_axes(axis, "token", names[0] if len(names) == 1 else "")
        axis.set_xlim(0.5, len(values) + 0.5)
        axis.xaxis.get_major_locator().set_params(integer=True)
        figure.subplots_adjust(bottom=0.42 / height_in, **margins)

    return render_svg(draw, CURVE_IN, height_in)


def _draw_lines(axis: Any, names: Sequence[str], values: np.ndarray, scaled: np.ndarray, step: int) -> dict[str, float]:
    """Return the margins of the figure."""
    starts = np.arange(0, len(values), step)
    # A piece of a long sequence is drawn by its lowest and its highest value.
    ends = np.stack([np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)], axis=1)[:, : min(step, 2)]
    marker = "." if values.size <= MAX_PIECES // 4 else None  # shows a value between two missing ones
    for channel, colour in enumerate(LINES[: len(names)] if len(names) > 1 else [INK]):
        tokens, line = np.repeat(starts + 1, ends.shape[1]), ends[..., channel].ravel()
        axis.plot(tokens, line, color=colour, linewidth=1.2, marker=marker, markersize=3, label=names[channel])
    if len(names) > 1:
        axis.legend(ncols=3, frameon=False, labelcolor=INK, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)
    return {"left": MARGIN["left"], "right": 0.98, "top": 0.95 - 0.1 * (len(names) > 1) - 0.1 * (len(names) > 3)}


def _draw_heat(axis: Any, names: Sequence[str], values: np.ndarray, scaled: np.ndarray, step: int) -> dict[str, float]:
    """Return the margins of the figure."""
    shown = np.where(np.isnan(values), 0.0, scaled)[::step, :, None]
    largest = np.quantile(np.abs(shown), 0.98) or 1.0  # not the maximum: a huge number would pale all others
    share = np.clip(shown / largest, -1, 1)
    cells = np.concatenate([np.where(share > 0, HIGH, LOW), np.abs(share)], axis=2).swapaxes(0, 1)
    axis.imshow(cells, aspect="auto", interpolation="none", extent=(0.5, len(values) + 0.5, len(names), 0))
    ends = zip(np.fmin.reduce(values).tolist(), np.fmax.reduce(values).tolist(), strict=True)
    ranges = [f"{plain_number(low, 3)} to {plain_number(high, 3)}" for low, high in ends]
    middles = np.arange(len(names)) + 0.5
    axis.set_yticks(middles, names)
    for middle, text in zip(middles, ranges, strict=True):
        axis.text(1.01, middle, text, color=INK, va="center", transform=axis.get_yaxis_transform())
    left, width = (0.03 + CHARACTER * max(map(len, texts)) for texts in (names, ranges))
    return {"left": left, "right": 1 - width, "top": 0.9}


def style_axes(axis: Any, x_label: str, y_label: str) -> None:
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.5)
    axis.tick_params(color=INK, labelcolor=INK, length=3, width=0.5)
    axis.set_xlabel(x_label, color=INK)
    axis.set_ylabel(y_label, color=INK)


def _float(value: Any) -> float:
    return float("nan") if value in (None, "") else float(value)
