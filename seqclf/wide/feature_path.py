"""Wide paths of fixed features and a ridge head. Subclasses define the features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqclf.batching.collate import pad
from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.models.heads.ridge import BLOCK, fit_ridge, rows_per_group
from seqclf.wide.parallel_parts import one_thread
from seqclf.wide.path import FittedPath, WidePath

MAX_TOKENS = 65_536  # tokens in a batch, padding included; a path may divide a batch among threads
MAX_FEATURES = 20_000
MAX_CELLS = 48_000_000  # rows times features of a fit, held as float32, and in a part of the fit as float64
HEAD_ROWS = 64  # training rows whose features are held in double precision at a time
MAX_SIDE = 4096  # rows and columns of the matrix that the ridge decomposes


class FeaturePath(WidePath):
    """Base class of wide paths with F fixed features of a sequence and a ridge head.

    A subclass defines `features`, and usually `title` and `has_use`. The features of all training rows are read once,
    divided by their standard deviations, and weighed by a ridge classifier whose penalty leave-one-out chooses.

    Args:
        fields: Specs of the model's inputs.
        num_classes: Number of classes C.
        size: Number of features F.
    """

    mean: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, fields: Sequence[FieldSpec], num_classes: int, *, size: int):
        super().__init__()
        self.names = [field["name"] for field in fields]
        self.size = size
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("weight", torch.zeros(size, num_classes))
        self.register_buffer("bias", torch.zeros(num_classes))

    def features(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) of sequences. The export to ONNX traces this method. See `WidePath.forward`."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the number of features."""
        return {"size": self.size}

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C) float32. See `WidePath.forward`."""
        features = self.features(fields, lengths)
        with one_thread():  # the product is too small to be worth a wait for other threads
            return self.head(features)

    def head(self, features: Tensor) -> Tensor:
        """Return the logits (B, C) float32 of features (B, F)."""
        # The head sums thousands of products, and padding must not show in them, so it computes in double precision.
        centred = features.double() - self.mean.double()
        return (centred @ self.weight.double() + self.bias.double()).float()

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit features and head to the rows of `train`. Returns None where `has_use` is False.

        With many rows or large groups, the head is fitted to random rows. The logits of the other rows come from the
        fitted path, because they took no part in the fit of its head. They are NaN where other rows of their group took
        part. Raises InputError if the features are not finite.
        """
        if not cls.has_use(fields):
            return None
        sequences, labels = train.sequences, train.labels
        generator = np.random.default_rng(seed)
        path = cls.unfitted(sequences, fields, num_classes).eval()
        with torch.inference_mode():
            most = min(MAX_CELLS // path.size, len(sequences) if path.size <= MAX_SIDE else MAX_SIDE)
            group = np.unique(train.groups, return_inverse=True)[1] if train.groups is not None else None
            rows = _choose_rows(len(sequences), most, group, path.size, generator)
            path.choose_thresholds(sequences, rows, generator)
            features = path._read(sequences, rows, path.features, path.size)
            if not features.isfinite().all():
                raise InputError(f"model.wide={cls.dotted_path()}", "gives features that are not finite")
            head = fit_ridge(
                features, path.scales(features), labels[rows], num_classes, None if group is None else group[rows]
            )
            for name in ("mean", "weight", "bias"):
                path.get_buffer(name).copy_(getattr(head, name))
            logits = torch.empty(len(sequences), num_classes)
            logits[torch.from_numpy(rows)] = torch.cat([path.head(part) for part in features.split(HEAD_ROWS)])
            rest = np.setdiff1d(np.arange(len(sequences)), rows)
            logits[torch.from_numpy(rest)] = path._read(sequences, rest, path.forward, num_classes)
        held_out = np.full((len(sequences), num_classes), np.nan)
        held_out[rows] = head.held_out
        own = rest if group is None else rest[~np.isin(group[rest], group[rows])]
        held_out[own] = logits[torch.from_numpy(own)].numpy()
        if len(rows) < len(labels):
            path.notes = [f"fitted to {len(rows):,} of {len(labels):,} training rows"]
        return FittedPath(path, held_out, logits.numpy())

    @classmethod
    def unfitted(cls, sequences: Ragged, fields: Sequence[FieldSpec], num_classes: int) -> Self:
        """Return a path for training rows, whose head is empty. The first row tells the number of features."""
        probe = cls(fields, num_classes, size=1)
        with torch.inference_mode():
            found = probe.features(*probe.batch(sequences, np.arange(1)))
        if found.dim() != 2 or len(found) != 1 or not 1 <= found.shape[1] <= MAX_FEATURES:
            problem = f"features of one row must be a tensor of the shape (1, F) with F up to {MAX_FEATURES:,}"
            raise InputError(f"model.wide={cls.dotted_path()}", f"{problem}, not {tuple(found.shape)}")
        return cls(fields, num_classes, size=found.shape[1])

    def choose_thresholds(self, sequences: Ragged, rows: np.ndarray, generator: np.random.Generator) -> None:
        """Set buffers of the features by the training rows that fit the head. By default there are none."""

    def scales(self, features: Tensor) -> Tensor:
        """Return the factor (F,) float64 of each feature in the penalty, from the features (N, F) of training rows."""
        return 1 / deviations(features).clamp(min=1e-6)

    def batch(self, sequences: Ragged, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        """Return fields and lengths of some rows, see `WidePath.forward`."""
        return padded(self._own(sequences), rows)

    def _read(self, sequences: Ragged, rows: np.ndarray, function: Callable[..., Tensor], width: int) -> Tensor:
        """(M, width) float32 results of `function` for some rows."""
        return read_rows(function, self._own(sequences), rows, width)

    def _own(self, sequences: Ragged) -> Ragged:
        return Ragged(sequences.offsets, {name: sequences.fields[name] for name in self.names})


def read_rows(function: Callable[..., Tensor], sequences: Ragged, rows: np.ndarray, width: int) -> Tensor:
    """Return the results (M, width) float32 of a function of fields and lengths for some rows.

    The rows are read in batches of about the same length.
    """
    result = torch.empty(len(rows), width)
    lengths = sequences.lengths[rows]
    order = np.argsort(lengths, kind="stable")
    for part in batches(lengths[order]):
        chosen = order[part]
        result[torch.from_numpy(chosen)] = function(*padded(sequences, rows[chosen])).float()
    return result


def padded(sequences: Ragged, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
    """Return all fields and the lengths of some rows as `WidePath.forward` takes them."""
    fields, lengths = pad(sequences, rows)
    tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
    whole = {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in tensors.items()}
    return whole, torch.from_numpy(lengths)


def deviations(features: Tensor) -> Tensor:
    """Return the standard deviations (F,) float64 of features (N, F)."""
    blocks = (block.double() for block in features.split(BLOCK, 1))
    # Plain passes are three times as fast as `std`.
    return torch.cat([(block - block.mean(0)).square_().mean(0).sqrt() for block in blocks])


def batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield positions of rows of ascending `lengths` (N,), at most MAX_TOKENS padded tokens or one row at a time."""
    start = 0
    while start < len(lengths):
        stop = start + 1
        while stop < len(lengths) and lengths[stop] * (stop + 1 - start) <= MAX_TOKENS:
            stop += 1
        yield np.arange(start, stop)
        start = stop


def _choose_rows(
    count: int, most: int, group: np.ndarray | None, features: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the ascending rows that fit the head: at most `most` random ones, a bounded number of each group."""
    order = generator.permutation(count)[:most]
    if group is not None:
        by_group = np.argsort(group[order], kind="stable")
        sizes = np.unique(group[order], return_counts=True)[1]
        places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # within the group
        order = order[by_group[places < rows_per_group(sizes, min(features, len(order)))]]
    return np.sort(order)
