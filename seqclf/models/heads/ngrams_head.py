"""N-grams head: logits as the sum of a learned row for each n-gram of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.data.field_spec import FieldSpec
from seqclf.models.heads.front_end import FrontEnd, Reading
from seqclf.models.heads.head import Head, HeadStep
from seqclf.models.running_state import State

LONGEST = 3  # tokens of the longest n-gram
BUCKETS = 32_768  # rows of the table; n-grams are hashed to rows
DROPOUT = 0.3  # fraction of the n-grams that training leaves out
# The rows are multiplied by this factor. With an optimizer such as Adam, it multiplies their learning rate: most
# n-grams occur in few batches.
RATE = 5.0
PRIME, FACTOR = 2_147_483_647, 1_000_003
PART = 2**16  # float32 states hold tokens in two parts, as they hold integers to 2^24 only


class NgramsHead(Head):
    """Sum of a learned row (C,) for each n-gram of ids, n = 1 to 3, over the square root of the length → logits (B, C).

    If there are several fields, a token is the combination of their ids.

    Args:
        front: Front end, which this head does not read.
        fields: Specs of the model's inputs. Fields that are not categories are not read.
        num_classes: Number of classes C.
    """

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int):
        super().__init__(front, fields, num_classes)
        self.names = [field["name"] for field in fields if field["kind"] == "category"]
        self.table = nn.Embedding(BUCKETS, num_classes)
        nn.init.zeros_(self.table.weight)

    def forward(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None, reading: Reading
    ) -> Tensor:
        """Return logits (B, C). See `Head.forward`."""
        token = self.tokens(fields)
        positions = torch.arange(token.shape[1], device=token.device)
        total = self.total(functional.pad(token, (LONGEST - 1, 0)), positions < lengths[:, None], positions)
        return RATE * total / lengths[:, None].to(total.dtype).sqrt()

    def tokens(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return one number (B, T), at least 1, for the ids of each token."""
        first, *others = (fields[name] for name in self.names)
        token = first + 1
        for other in others:
            token = (token * FACTOR + other + 1) % PRIME + 1
        return token

    def total(self, token: Tensor, inside: Tensor, before: Tensor) -> Tensor:
        """Return the sum (B, C) of the rows of all n-grams that end at a token.

        Args:
            token: (B, LONGEST - 1 + T) numbers of the tokens, with those before the first one in front.
            inside: (B, T) True for tokens.
            before: Number of tokens of the sequence before each token, (T,) or (B, T).
        """
        time = inside.shape[1]
        total: Tensor | None = None
        gram = torch.zeros_like(token[:, LONGEST - 1 :])
        for earlier in range(LONGEST):  # prepend the token that is `earlier` tokens before
            start = LONGEST - 1 - earlier
            gram = (gram * FACTOR + token[:, start : start + time]) % PRIME
            weight = (inside & (before >= earlier)).to(self.table.weight.dtype)
            if self.training:
                weight = functional.dropout(weight, DROPOUT)
            rows = self.table((gram * 40_503 + earlier * 7_919) % BUCKETS)
            of_length = (rows * weight[..., None]).sum(dim=1)
            total = of_length if total is None else total + of_length
        assert total is not None
        return total

    def step_form(self) -> NgramsStep:
        return NgramsStep(self)


class NgramsStep(HeadStep):
    """Streaming form of an `NgramsHead`. Its states are the last tokens in two parts each, their number and the sum."""

    def __init__(self, head: NgramsHead):
        super().__init__(head)
        tokens = [State(f"ngrams_{part}", (LONGEST - 1,)) for part in ("high", "low")]
        self.states = [*tokens, State("ngrams_count", (1,)), State("ngrams_total", (head.table.embedding_dim,))]

    def forward(
        self, fields: Mapping[str, Tensor], lengths: Tensor, reading: Reading, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk. See `HeadStep.forward`."""
        high, low, count, total = states
        token = torch.cat([high.long() * PART + low.long(), self.head.tokens(fields)], dim=1)
        positions = torch.arange(token.shape[1] - (LONGEST - 1), device=token.device)
        total = total + self.head.total(token, positions < lengths[:, None], count.long() + positions)
        last = token.gather(1, lengths[:, None] + torch.arange(LONGEST - 1, device=token.device))
        count = count + lengths[:, None]
        return RATE * total / count.sqrt(), [(last // PART).float(), (last % PART).float(), count, total]
