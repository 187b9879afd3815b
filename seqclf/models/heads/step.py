"""Streaming form of a network of heads, which reads one chunk of each sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from seqclf.models.heads.head import HeadStep
from seqclf.models.running_state import State


class HeadsStep(nn.Module):
    """A unidirectional `HeadsClassifier` that reads one chunk (see `ChunkStep`). It runs only inside the ONNX exporter.

    `heads`: streaming forms of the heads. `reader`: the head whose linear layer reads the windows, None without one.
    """

    more_inputs: Mapping[str, float] = MappingProxyType({})
    more_outputs: tuple[str, ...] = ()

    def __init__(self, network: Any, heads: Sequence[HeadStep], reader: Any):
        super().__init__()
        self.network, self.reader = network, reader
        self.heads = nn.ModuleList(heads)
        self.of_front = network.front.step_states()
        named = [
            state._replace(name=f"{index}_{state.name}") for index, head in enumerate(heads) for state in head.states
        ]
        self.states: list[State] = [*self.of_front, *named]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        """Return the `logits` (B, C) after the chunk and the new `states`. See `ChunkStep.forward`."""
        first = len(self.of_front)
        linear = None if self.reader is None else self.reader.of_windows
        reading, after = self.network.front.step(fields, lengths, states[:first], linear)
        logits = []
        for head in self.heads:
            last = first + len(head.states)  # type: ignore[arg-type]
            of_head, new = head(fields, lengths, reading, states[first:last])
            logits.append(of_head)
            after = [*after, *new]
            first = last
        return {"logits": self.network.added(logits), "states": after}
