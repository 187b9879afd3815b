"""N-grams head: logits as the sum of a learned row for each n-gram of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.data.field_spec import FieldSpec
from seqclf.models.heads.front_end import FrontEnd, Reading
from seqclf.models.heads.head import Head

LONGEST = 3  # tokens of the longest n-gram
BUCKETS = 32_768  # rows of the table; n-grams are hashed to rows
DROPOUT = 0.3  # fraction of the n-grams that training leaves out
# The rows are multiplied by this factor. With an optimizer such as Adam, it multiplies their learning rate: most
# n-grams occur in few batches.
RATE = 5.0
PRIME, FACTOR = 2_147_483_647, 1_000_003


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
        first, *others = (fields[name] for name in self.names)
        token = first + 1
        for other in others:
            token = (token * FACTOR + other + 1) % PRIME
        positions = torch.arange(token.shape[1], device=token.device)
        total: Tensor | None = None
        gram = token
        for longer in range(LONGEST):
            if longer:  # append the token that is `longer` tokens later
                later = functional.pad(token, (0, longer))[:, longer:]
                gram = (gram * FACTOR + later) % PRIME
            weight = (positions < lengths[:, None] - longer).to(self.table.weight.dtype)
            if self.training:
                weight = functional.dropout(weight, DROPOUT)
            rows = self.table((gram * 40_503 + longer * 7_919) % BUCKETS)
            of_length = (rows * weight[..., None]).sum(dim=1)
            total = of_length if total is None else total + of_length
        assert total is not None
        return RATE * total / lengths[:, None].to(total.dtype).sqrt()
