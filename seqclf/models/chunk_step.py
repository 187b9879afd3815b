"""Classifier over one chunk of tokens, with the state of everything before it: the second graph of a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from seqclf.models.running_state import State

STATE_INPUT, STATE_OUTPUT = "state/", "next/"  # prefixes of names; no field has a slash in its name


class ChunkStep(nn.Module):
    """A `SequenceClassifier` that reads chunk by chunk: embedding → encoder → pooling of all tokens so far → head.

    `states`: those of the encoder and of the pooling, in the order of `forward`. It runs only inside the exporter, as
    its encoder consists of ONNX operators. See `step_form` of `SequenceClassifier` for whether there is one.
    """

    more_inputs: Mapping[str, float] = MappingProxyType({})  # numbers that `forward` takes too, with examples
    more_outputs: tuple[str, ...] = ()  # names of what `forward` returns besides logits and states

    def __init__(self, classifier: Any, encoder: Any):
        super().__init__()
        self.embedding = classifier.embedding
        self.encoder = encoder
        self.pooling = classifier.pooling
        self.norm, self.output = classifier.norm, classifier.output
        self.states: list[State] = [*encoder.states, *self.pooling.states]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        """Return `logits` (B, C) after the chunk and the new `states`.

        `fields`: see `SequenceClassifier.forward`. `lengths`: (B,) tokens of each row in this chunk, at least 1.
        """
        outputs, encoder_states = self.read(fields, lengths, states)
        pooled, pooling_states = self.pooling.run(outputs, lengths, states[len(encoder_states) :])
        return {"logits": self.classify(pooled), "states": [*encoder_states, *pooling_states]}

    def read(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (B, T, size) of the encoder and its new states."""
        return self.encoder(self.embedding(fields), lengths, states[: len(self.encoder.states)])

    def classify(self, pooled: Tensor) -> Tensor:
        return self.output(self.norm(pooled))
