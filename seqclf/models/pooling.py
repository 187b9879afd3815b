"""Pooling of the encoder outputs of each sequence to one vector. Padding is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import AfterValidator
from torch import Tensor, nn

from seqclf.errors import RefusedValueError
from seqclf.models.streaming import LOWEST, State
from seqclf.settings.typed_text import must_be_one_of

POOLINGS = ("last", "mean", "max", "attention")


def check_pooling(value: str) -> str:
    """Reject a pooling that is neither a known name nor several different known names joined by `+`."""
    names = value.split("+")
    unknown = [name for name in names if name not in POOLINGS]
    if unknown:
        problem, hint = must_be_one_of(unknown[0], POOLINGS)
        raise RefusedValueError(problem, "; ".join(filter(None, [hint, "several are joined by +"])))
    if len(set(names)) < len(names):
        raise RefusedValueError("names one twice")
    return value


PoolingNames = Annotated[str, AfterValidator(check_pooling)]


def token_mask(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (B, T) that is True for tokens and False for padding. `lengths`: (B,). `longest`: T.

    >>> token_mask(torch.tensor([3, 1]), longest=3).int().tolist()
    [[1, 1, 1], [1, 0, 0]]
    """
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class RunningMax(nn.Module):
    """Running maximum: (B, T, size) → (B, T, size), at position t the maximum over the tokens 0 to t."""

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.cummax(dim=1).values

    def onnx_form(self) -> nn.Module:
        from seqclf.models.onnx.functions import OnnxRunningMax  # import onnxscript only for an export

        return OnnxRunningMax()


class Pooling(nn.Module):
    """Pooling of encoder outputs (B, T, `size`) to one vector per sequence (B, `self.size`).

    `kind`: "mean", "max", "last" or "attention" (a weighted mean, with a learned score for each token), or several of
    them joined by "+", whose vectors are concatenated (see `check_pooling`). The last `backward_size` channels of an
    output are those of the backward direction: "last" takes them from the first token, so that all of it depends on all
    tokens. For a unidirectional encoder, `run` pools a sequence in chunks, and `prefixes` pools every prefix of a
    sequence.

    >>> outputs = torch.tensor([[[1.0], [5.0], [9.0]], [[2.0], [4.0], [0.0]]])
    >>> Pooling("mean+max", size=1, backward_size=0)(outputs, torch.tensor([3, 2])).tolist()
    [[5.0, 9.0], [3.0, 4.0]]
    """

    def __init__(self, kind: str, size: int, backward_size: int):
        super().__init__()
        self.kinds = kind.split("+")
        self.size = size * len(self.kinds)
        self.forward_size = size - backward_size
        self.score = nn.Linear(size, 1) if "attention" in self.kinds else None
        self.running_max = RunningMax()

    def forward(self, outputs: Tensor, lengths: Tensor) -> Tensor:
        pooled = [self._pool(kind, outputs, lengths) for kind in self.kinds]
        return torch.cat(pooled, dim=-1) if len(pooled) > 1 else pooled[0]

    def _pool(self, kind: str, outputs: Tensor, lengths: Tensor) -> Tensor:
        if kind == "last":
            last_tokens = (lengths - 1)[:, None, None].expand(-1, 1, self.forward_size)
            forward_last = outputs.gather(1, last_tokens)[:, 0]
            # The backward direction starts at the last token, so its output at the first token depends on all tokens.
            backward_last = outputs[:, 0, self.forward_size :]
            return torch.cat([forward_last, backward_last], dim=-1) if backward_last.shape[-1] else forward_last
        # Padding may be NaN, so it is replaced and not multiplied by 0.
        inside = token_mask(lengths, outputs.shape[1])[..., None]
        if kind == "mean":
            return torch.where(inside, outputs, 0.0).sum(dim=1) / lengths[:, None].to(outputs.dtype)
        if kind == "max":
            return outputs.masked_fill(~inside, float("-inf")).amax(dim=1)
        assert self.score is not None
        weights = self.score(outputs).masked_fill(~inside, float("-inf")).softmax(dim=1)
        return (weights * torch.where(inside, outputs, 0.0)).sum(dim=1)

    @property
    def states(self) -> list[State]:
        return [state for kind in self.kinds for state in self._states_of(kind)]

    def _states_of(self, kind: str) -> list[State]:
        channels = (self.size // len(self.kinds),)
        attention = [State("attention_sum", channels), State("attention_weight", (1,))]
        by_kind = {
            "last": [],
            "mean": [State("mean_sum", channels), State("mean_count", (1,))],
            "max": [State("max", channels, LOWEST)],
            "attention": [*attention, State("attention_max", (1,), LOWEST)],
        }
        return by_kind[kind]

    def run(self, outputs: Tensor, lengths: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Pool the next chunk of each sequence, of a unidirectional encoder.

        `outputs`: (B, T, `size`). `lengths`: (B,) number of tokens in the chunk, at least 1. Returns the pooled vectors
        (B, `self.size`) of all tokens so far, and the states after the chunk.
        """
        remaining, pooled, after = list(states), [], []
        inside = token_mask(lengths, outputs.shape[1])[..., None]
        for kind in self.kinds:
            if kind == "last":
                vector, new = self._pool(kind, outputs, lengths), []
            elif kind == "mean":
                total, count, *remaining = remaining
                total = total + torch.where(inside, outputs, 0.0).sum(dim=1)
                count = count + lengths[:, None].to(outputs.dtype)
                vector, new = total / count, [total, count]
            elif kind == "max":
                highest, *remaining = remaining
                vector = torch.maximum(highest, outputs.masked_fill(~inside, LOWEST).amax(dim=1))
                new = [vector]
            else:
                total, weight, highest, *remaining = remaining
                vector, new = self._attend(outputs, inside, total, weight, highest)
            pooled.append(vector)
            after += new
        return torch.cat(pooled, dim=-1), after

    def _attend(
        self, outputs: Tensor, inside: Tensor, total: Tensor, weight: Tensor, highest: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute the softmax incrementally: a token with a new highest score scales the earlier sums down."""
        assert self.score is not None
        scores = self.score(outputs).masked_fill(~inside, LOWEST)
        new_highest = torch.maximum(highest, scores.amax(dim=1))
        kept = (highest - new_highest).exp()
        weights = (scores - new_highest[:, None]).exp()
        total = total * kept + (weights * torch.where(inside, outputs, 0.0)).sum(dim=1)
        weight = weight * kept + weights.sum(dim=1)
        return total / weight, [total, weight, new_highest]

    def prefixes(self, outputs: Tensor, lengths: Tensor, states: Sequence[Tensor] = ()) -> Tensor:
        """Return a vector (B, T, `self.size`) for every prefix of each sequence, of a unidirectional encoder.

        The vector at position t pools the tokens 0 to t; at padding, it is undefined. `states`: states before the
        tokens of `outputs` (see `run`), or () at the start.
        """
        inside = token_mask(lengths, outputs.shape[1])[..., None]
        outputs = torch.where(inside, outputs, 0.0)  # padding may be NaN
        remaining, pooled = [state[:, None] for state in states], []
        for kind in self.kinds:
            before = [remaining.pop(0) for _ in range(len(self._states_of(kind)))] if states else []
            if kind == "last":
                pooled.append(outputs)
            elif kind == "mean":
                # Count the tokens in float32 or float64, because bfloat16 cannot represent 257.
                wide = torch.promote_types(outputs.dtype, torch.float32)
                counts = torch.arange(1, outputs.shape[1] + 1, device=outputs.device, dtype=wide)[:, None]
                total, count = before or (0.0, 0.0)
                pooled.append(((total + outputs.cumsum(dim=1, dtype=wide)) / (count + counts)).to(outputs.dtype))
            elif kind == "max":
                highest = self.running_max(outputs)
                pooled.append(torch.maximum(before[0], highest) if before else highest)
            else:
                pooled.append(self._attended_prefixes(outputs, inside, before))
        return torch.cat(pooled, dim=-1) if len(pooled) > 1 else pooled[0]

    def _attended_prefixes(self, outputs: Tensor, inside: Tensor, before: Sequence[Tensor]) -> Tensor:
        assert self.score is not None
        # In float32, the weight of an early token could become 0 if a later token has a much higher score.
        scores = self.score(outputs).double().masked_fill(~inside, LOWEST)
        highest = scores.amax(dim=1, keepdim=True)
        total, weight = torch.zeros_like(highest), torch.zeros_like(highest)
        if before:
            highest = torch.maximum(highest, before[2].double())
            kept = (before[2].double() - highest).exp()
            total, weight = before[0].double() * kept, before[1].double() * kept
        weights = (scores - highest).exp()
        totals = total + (weights * outputs).cumsum(dim=1)
        return (totals / (weight + weights.cumsum(dim=1)).clamp(min=1e-300)).to(outputs.dtype)
