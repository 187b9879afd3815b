"""The content of a walkthrough, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqclf.documents.formatting import score, shortened
from seqclf.models.parity_grid import TOLERANCE
from seqclf.walkthrough.stages import Stage, TreeLevels

MAX_CLASSES = 5  # of a row, where there are more
EPOCH_COLUMNS = ("epoch", "loss", "accuracy", "recall")
MAX_EPOCHS = 15  # lines of the table of epochs


@dataclass(frozen=True, kw_only=True)
class WalkthroughPage:
    """Stages of some rows, and the model that they went through.

    `refused`: reasons of rows that could not be shown. `model`: config of the network. `history`: the rows of
    metrics.csv, none where they are not known. `best_epoch`: that of the model, from 0. `bundle_error`: largest
    difference between the logits shown and those of the bundle, None without one.
    """

    stages: Sequence[Stage]
    refused: Sequence[str]
    model: Mapping[str, Any]
    weights: int
    checkpoint: str
    history: Sequence[Mapping[str, Any]]
    best_epoch: int | None
    bundle_error: float | None


def row_name(number: int, given: str, most: int) -> str:
    """Return the number of a row, and at most `most` characters of its name in the input, "" if that is the number.

    >>> row_name(5, "id 9", 20), row_name(1, "", 20)
    ('5 (id 9)', '1')
    """
    return f"{number} ({shortened(given, most)})" if given else str(number)


def counted(count: int, thing: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "node"), counted(2, "more row")
    ('1 node', '2 more rows')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def bundle_text(error: float) -> str:
    """Return what to say of a bundle whose logits differ by `error` from those shown.

    >>> bundle_text(2e-6)
    'gives the same logits; the largest difference is 2.0e-06'
    """
    if error <= 10 * TOLERANCE:  # which is relative to the largest logit
        return f"gives the same logits; the largest difference is {error:.1e}"
    return f"gives other logits, by up to {error:.2g}: it was exported from another checkpoint"


def shape_text(stage: Stage) -> str:
    """Return the shape of a stage with the names of its axes, "" without one. Trees have counts, which are no shape.

    >>> shape_text(Stage("", "", None, (4, 3), ("rows", "tokens")))
    '(4, 3) = (rows, tokens)'
    """
    return f"{short_shape(stage)} = ({', '.join(stage.axes)})" if stage.shape else short_shape(stage)


def short_shape(stage: Stage) -> str:
    """Return the shape of a stage without the names of its axes."""
    if isinstance(stage.content, TreeLevels):
        levels = stage.content
        return f"{counted(len(levels.order), 'level')}, {counted(int(levels.lengths.sum()), 'node')}"
    return f"({', '.join(f'{size:,}' for size in stage.shape)})" if stage.shape else ""


def scored_split(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the split whose scores the table of epochs shows: validation, or train without one."""
    return "validation" if any("validation/loss" in row for row in history) else "train"


def epoch_rows(history: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return epoch, counted from 1, loss, accuracy and macro recall after each epoch, as texts."""
    split = scored_split(history)
    return [
        [str(int(row["epoch"]) + 1), *(score(row.get(f"{split}/{name}")) for name in EPOCH_COLUMNS[1:])]
        for row in history
    ]
