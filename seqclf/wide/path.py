"""Interface of a wide path: fixed features of a sequence, and a linear head that is fitted, not trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec
from seqclf.data.storage.store import Split
from seqclf.models.running_state import State


class WidePath(nn.Module):
    """Base class of wide paths: fields of tokens → logits (B, C).

    The constructor takes `fields` (specs of the model's inputs), `num_classes` and the values of `settings`, by name,
    and makes a path of the right shapes whose buffers are empty. `fit` fills them, and so does a checkpoint. All that
    is fitted is a buffer, so that a path has no parameters, and an optimizer changes nothing in it.

    The logits of a sequence depend on nothing but its tokens: padding may hold any value, NaN too.
    """

    title: ClassVar[str] = "simple model"  # name of the features for reports, such as "n-grams"
    reads_chunks: ClassVar[bool] = False  # whether `step` is defined
    notes: Sequence[str] = ()  # limits that `fit` met, as lines for the terminal

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C) float32. The export to ONNX traces this method, with free batch and time axes.

        `fields[name]`: (B, T) int64, (B, T, K) int64 or (B, T, D) float32. `lengths`: (B,) int64, each in [1, T].
        """
        raise NotImplementedError

    def chunk_states(self) -> list[State] | None:
        """Return the states that `step` carries from chunk to chunk, None for a path that needs whole sequences."""
        return None

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. Return logits (B, C) of all tokens so far, and the new states.

        `fields`, `lengths`: tokens of the chunk, see `forward`. `states`: one tensor for each of `chunk_states`.
        """
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the plain values that the constructor takes beside `fields` and `num_classes`."""
        return {}

    def index_limits(self) -> dict[str, int]:
        """Return dict buffer that holds indices → number of the places that it names, which loading checks."""
        return {}

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        prefix, errors = arguments[1], arguments[-1]  # PyTorch raises the list of errors as one
        for name, places in self.index_limits().items():
            buffer = self.get_buffer(name)
            if buffer.numel() and not 0 <= int(buffer.min()) <= int(buffer.max()) < places:
                errors.append(f"{prefix}{name} must be indices below {places}")

    @classmethod
    def dotted_path(cls) -> str:
        """Return the dotted path of the class, by which a checkpoint and `model.wide` name it."""
        return f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True if the path can read these fields."""
        return True

    @classmethod
    def quick_look(
        cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return some rows (M,) of `train` and their logits (M, C), from a quick fit without them.

        A path that takes long to fit defines it: where these rows show no gain beside the paths before it, it is left
        out. Returns None for a path that is fitted in any case.
        """
        return None

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit a path to the rows of `train`. Returns None if the path cannot be fitted to them.

        The result depends on the arguments alone.
        """
        raise NotImplementedError


class FittedPath(NamedTuple):
    """A fitted path, and its logits for the N training rows.

    `held_out`: logits (N, C) float64 of each row by a fit without that row. They are NaN in rows that no fit left out,
    as in a large split that was sampled. `logits`: those of `path` itself, float32, where the fit computed its features
    anyway; None where it did not.
    """

    path: WidePath
    held_out: np.ndarray
    logits: np.ndarray | None = None
