"""Streaming form of a classifier, the second ONNX graph in a bundle: reads a chunk, passes states to the next chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from seqclf.models.running_state import State

STATE_INPUT, STATE_OUTPUT = "state/", "next/"  # start of names; a field name has no slash


class ChunkStep(nn.Module):
    """A `SequenceClassifier` that reads sequences in chunks: embedding → encoder → pooling of all tokens so far → head.

    `states`: list of `State`, as in `forward`: those of the encoder, then those of the pooling. It runs only inside the
    ONNX exporter, because its encoder consists of ONNX operators (see `SequenceClassifier.streaming`).
    """

    # Names of additional outputs of `forward`: `extra_outputs` of the network after all tokens so far, and `halted`
    # (B,), True for a sequence of which nothing more is read.
    more_outputs: tuple[str, ...] = ()

    def __init__(self, classifier: Any, encoder: Any):
        super().__init__()
        self.embedding = classifier.embedding
        self.encoder = encoder
        self.pooling = classifier.pooling
        self.norm, self.static, self.output = classifier.norm, classifier.static, classifier.output
        self.structure: tuple[str, ...] = classifier.structure
        self.states: list[State] = [*encoder.states, *self.pooling.states]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        """Return a dict with the `logits` (B, C) and the `states` after the chunk.

        `lengths`: (B,) number of tokens of each sequence in the chunk, at least 1. `states`: states before the chunk.
        """
        outputs, encoder_states = self.read(fields, lengths, states)
        pooled, pooling_states = self.pooling.run(outputs, lengths, states[len(encoder_states) :])
        return {"logits": self.classify(pooled, fields), "states": [*encoder_states, *pooling_states]}

    def read(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (B, T, size) of the encoder, and the encoder states after the chunk."""
        structure = {name: fields[name] for name in self.structure}
        return self.encoder(self.embedding(fields), lengths, states[: len(self.encoder.states)], **structure)

    def classify(self, pooled: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        return self.output(self.static(self.norm(pooled), fields))
