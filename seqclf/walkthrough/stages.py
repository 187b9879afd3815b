"""Stages of the pipeline, from raw rows to labels, each with its shape and values.

A page or a terminal shows a list of them, in their order, by the class of their `content`. Arrays are NumPy's, so that
nothing that shows them needs PyTorch. B rows are padded to T tokens. A stage may have another number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_CHANNELS = 8
ROW_NAME = ""


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline.

    `title`: its name for readers. `text`: what it does to the shape and why, in plain sentences. `shape`: of its
    result, with a name for each axis in `axes`; empty for lists of rows. `module`: dotted name in the network. `note`:
    sentences after `text` about these rows, which a terminal shows too.
    """

    title: str
    text: str
    content: Content
    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    module: str = ""
    note: str = ""


class Part(NamedTuple):
    """Consecutive channels with a name, such as those of a direction. `start` and `stop` are half-open bounds."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class RawRows:
    """Rows as they were given: column → text, and under `ROW_NAME`, which no column has, their name in the input.

    The name is "" where it is the number of the row.

    `labels`: None for rows without one. `lengths`: (B,) tokens.
    """

    rows: Sequence[dict[str, str]]
    labels: Sequence[str | None]
    lengths: np.ndarray


class FieldTokens(NamedTuple):
    """One field of a row. `tokens`, `encoded`: a text for each token. `unknown`: (T,) bool, not in the vocabulary."""

    name: str
    tokens: Sequence[str]
    encoded: Sequence[str]
    unknown: np.ndarray


@dataclass(frozen=True)
class EncodedRows:
    """Tokens and the numbers that stand for them: for each row its fields. `unknown`: tokens of a row, by row."""

    rows: Sequence[Sequence[FieldTokens]]


@dataclass(frozen=True)
class PaddedBatch:
    """The batch that the network gets. `cells`: (B, T) texts of the field `name`, "" for padding.

    `lengths`: (B,). `active`: (T,) rows that have a token at each position. `inputs`: name, type and shape of all.
    `may_pack`: False if the network reads no packed sequences.
    """

    name: str
    cells: Sequence[Sequence[str]]
    lengths: np.ndarray
    active: np.ndarray
    inputs: Sequence[tuple[str, str, tuple[int, ...]]]
    may_pack: bool = True


@dataclass(frozen=True)
class TokenVectors:
    """A vector for each token: `values` (B, T, D) and `lengths` (B,). What lies beyond a length is padding.

    `channels`: (M,) of the D that are shown. `parts`: names of channels. `tokens`: a text for each token by row, None
    where a vector stands for several tokens, or tokens are vectors of numbers.
    """

    values: np.ndarray
    lengths: np.ndarray
    channels: np.ndarray
    parts: Sequence[Part]
    tokens: Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class TokenScores:
    """One number for each token: `values` (B, T) and `lengths` (B,), such as a weight or a probability to stop.

    `name`: of the number. `marked`: (B,) a token of each row that the stage chose, such as the one at which a model
    halts, with the words for them in `marks`. None if it chose none. `tokens`: as in `TokenVectors`.
    """

    name: str
    values: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None
    marked: np.ndarray | None = None
    marks: Sequence[str] = ()


@dataclass(frozen=True)
class TokenPairs:
    """The share `values` (B, T, T) of what token i reads that comes from token j. Rows sum to 1 within `lengths`."""

    values: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class TreeLevels:
    """Trees by depth. `parents`: (B, T) index of the parent, -1 for roots. `depths`: (B, T), 0 for roots.

    All nodes of a depth are computed together, the deepest first.
    """

    parents: np.ndarray
    depths: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]]

    def nodes(self, depth: int) -> list[list[int]]:
        """Return the nodes of a depth, by row."""
        return [
            np.flatnonzero(depths[:length] == depth).tolist()
            for depths, length in zip(self.depths, self.lengths, strict=True)
        ]

    @property
    def order(self) -> list[int]:
        """Depths in the order of their computation."""
        inside = np.arange(self.depths.shape[1]) < self.lengths[:, None]
        return list(range(int(self.depths[inside].max()), -1, -1))


@dataclass(frozen=True)
class RowVectors:
    """A vector for each row, `values` (B, D). `channels`, `parts`: as in `TokenVectors`."""

    values: np.ndarray
    channels: np.ndarray
    parts: Sequence[Part]


@dataclass(frozen=True)
class ClassScores:
    """A number for each class, `values` (B, C). `predicted`: (B,) classes. `labels`: true ones, where known.

    `are_probabilities`: rows sum to 1.
    """

    values: np.ndarray
    classes: Sequence[str]
    predicted: np.ndarray
    labels: Sequence[str | None]
    are_probabilities: bool


@dataclass(frozen=True)
class MemberScores:
    """Probabilities of each network of an ensemble, `members` (M, B, C), and their mean (B, C)."""

    members: np.ndarray
    mean: np.ndarray
    classes: Sequence[str]


Content = (
    RawRows
    | EncodedRows
    | PaddedBatch
    | TokenVectors
    | TokenScores
    | TokenPairs
    | TreeLevels
    | RowVectors
    | ClassScores
    | MemberScores
)


def active_rows(lengths: np.ndarray) -> np.ndarray:
    """Return for each token position the rows that have a token there, (T,): the batch sizes of a packed sequence.

    >>> active_rows(np.array([3, 2, 4, 1])).tolist()
    [4, 3, 2, 1]
    """
    return (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)


def varying_channels(values: np.ndarray, lengths: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """Return the channels (M,), ascending, that vary most over the tokens, as many of each part.

    `values`: (B, T, D), of which padding is not read. At most `MAX_CHANNELS` are returned, or one of each part.
    """
    inside = np.arange(values.shape[1]) < lengths[:, None]
    spread = values[inside].std(axis=0)
    most = max(1, MAX_CHANNELS // len(parts))
    chosen = [part.start + np.argsort(-spread[part.start : part.stop], kind="stable")[:most] for part in parts]
    return np.sort(np.concatenate(chosen))


def channel_names(channels: np.ndarray, parts: Sequence[Part]) -> list[str]:
    """Return a name for each channel, counted from 1 within its part.

    >>> channel_names(np.array([0, 5]), [Part("forward", 0, 4), Part("backward", 4, 8)])
    ['forward 1', 'backward 2']
    """
    names = []
    for channel in channels.tolist():
        part = next(part for part in parts if part.start <= channel < part.stop)
        names.append(f"{part.name} {channel - part.start + 1}".strip())
    return names


def channel_ranges(channels: np.ndarray, parts: Sequence[Part]) -> str:
    """Return the names of channels in one text, by part.

    >>> channel_ranges(np.array([0, 2, 5]), [Part("forward", 0, 4), Part("backward", 4, 8)])
    'forward 1, 3; backward 2'
    """
    texts = []
    for part in parts:
        numbers = [str(channel - part.start + 1) for channel in channels.tolist() if part.start <= channel < part.stop]
        if numbers:
            texts.append(f"{part.name} {', '.join(numbers)}".strip())
    return "; ".join(texts)
