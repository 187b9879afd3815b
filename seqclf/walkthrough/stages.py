"""Data classes for the stages of the pipeline, from raw rows to labels. A stage has a shape and values.

A page and the terminal draw a stage according to the class of its `content`. All arrays are NumPy arrays, so that
drawing does not need PyTorch. In all shapes, B is the number of rows and T the number of tokens after padding. In a
stage after a convolution, T is smaller than in the input batch.
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
    """One stage of the pipeline.

    `title`: name of the stage for readers. `text`: explanation of the stage for a page. `content`: data of the stage,
    such as vectors or scores. `shape`: shape of the data, empty for lists of rows. `axes`: name of each axis of
    `shape`. `module`: dotted path of the network module that computes the stage. `note`: additional sentences about the
    rows, shown on a page and in the terminal.
    """

    title: str
    text: str
    content: Content
    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    module: str = ""
    note: str = ""


class Part(NamedTuple):
    """A named range of channels [start, stop), such as the channels of the forward direction."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class RawRows:
    """Original rows.

    `rows`: for each row, a dict field → original text. The additional key `ROW_NAME` has the name of the row, or "" if
    the input does not name its rows. `labels`: true label of each row, or `None` if the label is unknown. `lengths`:
    (B,) number of tokens of each row.
    """

    rows: Sequence[dict[str, str]]
    labels: Sequence[str | None]
    lengths: np.ndarray


class FieldTokens(NamedTuple):
    """One field of a row.

    `tokens`: original text of each token. `encoded`: ids or scaled numbers of each token, formatted as text. `unknown`:
    (T,) bool, True if the token is not in the vocabulary.
    """

    name: str
    tokens: Sequence[str]
    encoded: Sequence[str]
    unknown: np.ndarray


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows. `rows`: for each row, a list with one entry for each encoded field."""

    rows: Sequence[Sequence[FieldTokens]]


@dataclass(frozen=True)
class PaddedBatch:
    """The padded batch that the network gets.

    `cells`: (B, T) encoded tokens of the field `name` as text, "" for padding. `lengths`: (B,) number of tokens of each
    row. `active`: (T,) number of rows that have a token at each position. `inputs`: name, type and shape of each input
    array of the network. `may_pack`: False if the network cannot read packed sequences.
    """

    name: str
    cells: Sequence[Sequence[str]]
    lengths: np.ndarray
    active: np.ndarray
    inputs: Sequence[tuple[str, str, tuple[int, ...]]]
    may_pack: bool = True


@dataclass(frozen=True)
class TokenVectors:
    """One vector for each token.

    `values`: (B, T, D) vectors. Positions from `lengths` on are padding. `lengths`: (B,) number of tokens of each row.
    `channels`: (M,) indices of the channels to show. `parts`: named ranges of channels, such as the forward direction.
    `tokens`: one list of token texts for each row. `tokens` is `None` if tokens are vectors of numbers, or if one
    vector is computed from several tokens.
    """

    values: np.ndarray
    lengths: np.ndarray
    channels: np.ndarray
    parts: Sequence[Part]
    tokens: Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class TokenScores:
    """One number for each token, such as a weight or a probability to stop.

    `name`: meaning of the number, such as "weight". `values`: (B, T) numbers. `lengths`: (B,) number of tokens of each
    row. `tokens`: token texts, as in `TokenVectors`. `marked`: (B,) position of one marked token in each row, such as
    the token where the model halts. `marked` is `None` if no token is marked. `marks`: word that is shown at the marked
    token of each row.
    """

    name: str
    values: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None
    marked: np.ndarray | None = None
    marks: Sequence[str] = ()


@dataclass(frozen=True)
class TokenPairs:
    """One number for each pair of tokens.

    `values`: (B, T, T) fractions. Entry (b, i, j) is the fraction of token i's input that comes from token j. For each
    token i, the fractions over all tokens j of the row sum to 1. `lengths`: (B,) number of tokens of each row.
    `tokens`: token texts, as in `TokenVectors`.
    """

    values: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class TreeLevels:
    """Trees, with the depth of each node.

    All nodes of one depth are computed together, from the largest depth to the roots. `parents`: (B, T) index of the
    parent of each node, -1 for roots. `depths`: (B, T) depth of each node, 0 for roots. `lengths`: (B,) number of nodes
    of each row. `tokens`: one list of node texts for each row.
    """

    parents: np.ndarray
    depths: np.ndarray
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]]

    def nodes(self, depth: int) -> list[list[int]]:
        """Return the indices of the nodes at a depth, as one list for each row."""
        return [
            np.flatnonzero(depths[:length] == depth).tolist()
            for depths, length in zip(self.depths, self.lengths, strict=True)
        ]

    @property
    def order(self) -> list[int]:
        """All depths in order of computation, from the largest depth to 0."""
        inside = np.arange(self.depths.shape[1]) < self.lengths[:, None]
        return list(range(int(self.depths[inside].max()), -1, -1))


@dataclass(frozen=True)
class RowVectors:
    """One vector for each row. `values`: (B, D) vectors. `channels`, `parts`: as in `TokenVectors`."""

    values: np.ndarray
    channels: np.ndarray
    parts: Sequence[Part]


@dataclass(frozen=True)
class ClassScores:
    """One number for each class, such as a logit or a probability.

    `values`: (B, C) numbers. `classes`: the C labels. `predicted`: (B,) class numbers. `labels`: true label of each
    row, or `None` if the label is unknown. `are_probabilities`: True if the values of a row sum to 1.
    """

    values: np.ndarray
    classes: Sequence[str]
    predicted: np.ndarray
    labels: Sequence[str | None]
    are_probabilities: bool


@dataclass(frozen=True)
class MemberScores:
    """Class probabilities of an ensemble.

    `members`: (M, B, C) probabilities of M networks. `mean`: (B, C) mean of the probabilities over the networks.
    """

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
    """Return (T,) counts: the number of rows that have a token at each position.

    The counts are the batch sizes of a packed sequence.

    >>> active_rows(np.array([3, 2, 4, 1])).tolist()
    [4, 3, 2, 1]
    """
    return (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)


def varying_channels(values: np.ndarray, lengths: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """Return the ascending indices (M,) of the channels that vary most over all tokens.

    `values`: (B, T, D) vectors. Padding is ignored. The same number of channels is chosen from each part of the
    channels. At most `MAX_CHANNELS` channels are returned, but at least one channel of each part.
    """
    inside = np.arange(values.shape[1]) < lengths[:, None]
    spread = values[inside].std(axis=0)
    most = max(1, MAX_CHANNELS // len(parts))
    chosen = [part.start + np.argsort(-spread[part.start : part.stop], kind="stable")[:most] for part in parts]
    return np.sort(np.concatenate(chosen))


def channel_names(channels: np.ndarray, parts: Sequence[Part]) -> list[str]:
    """Return the name of each channel: the name of its part, and its number in the part, counted from 1.

    >>> channel_names(np.array([0, 5]), [Part("forward", 0, 4), Part("backward", 4, 8)])
    ['forward 1', 'backward 2']
    """
    names = []
    for channel in channels.tolist():
        part = next(part for part in parts if part.start <= channel < part.stop)
        names.append(f"{part.name} {channel - part.start + 1}".strip())
    return names


def channel_ranges(channels: np.ndarray, parts: Sequence[Part]) -> str:
    """Return a text that lists the channel numbers of each part, counted from 1.

    >>> channel_ranges(np.array([0, 2, 5]), [Part("forward", 0, 4), Part("backward", 4, 8)])
    'forward 1, 3; backward 2'
    """
    texts = []
    for part in parts:
        numbers = [str(channel - part.start + 1) for channel in channels.tolist() if part.start <= channel < part.stop]
        if numbers:
            texts.append(f"{part.name} {', '.join(numbers)}".strip())
    return "; ".join(texts)
