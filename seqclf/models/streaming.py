"""Streaming forms, the second ONNX graph in a bundle: each reads a chunk, and passes states to the next chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqclf.models.network import Fields

STATE_INPUT, STATE_OUTPUT = "state/", "next/"  # start of names; a field name has no slash
LOWEST = -3.4028234663852886e38  # lowest finite float32; JSON cannot store -inf, and -inf - -inf is NaN


class State(NamedTuple):
    """Description of a state, a float32 tensor (B, *`shape`) for B sequences, `initial` before the first token.

    `initial` must be a finite number: write -1e30 or `LOWEST` for the -inf of a running maximum.
    """

    name: str
    shape: tuple[int, ...]
    initial: float = 0.0


class ChunkStep(nn.Module):
    """A `EncoderClassifier` that reads sequences in chunks: embedding → encoder → pooling of all tokens so far → head.

    `states`: those of the encoder, then those of the pooling. It runs only inside the ONNX exporter, because its
    encoder consists of ONNX operators.
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

    def forward(self, fields: Fields, lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        """Return a dict with the `logits` (B, C) and the `states` after the chunk.

        `lengths`: (B,) number of tokens of each sequence in the chunk, at least 1. `states`: states before the chunk.
        """
        outputs, encoder_states = self.read(fields, lengths, states)
        pooled, pooling_states = self.pooling.run(outputs, lengths, states[len(encoder_states) :])
        return {"logits": self.classify(pooled, fields), "states": [*encoder_states, *pooling_states]}

    def read(self, fields: Fields, lengths: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        structure = {name: fields[name] for name in self.structure}
        return self.encoder(self.embedding(fields), lengths, states[: len(self.encoder.states)], **structure)

    def classify(self, pooled: Tensor, fields: Fields) -> Tensor:
        return self.output(self.static(self.norm(pooled), fields))


class HeadStep(nn.Module):
    """Streaming form of a head that reads no more than the means and statistics of all tokens so far."""

    def __init__(self, head: Any):
        super().__init__()
        self.head = head
        self.states: list[State] = []

    def forward(
        self, fields: Fields, lengths: Tensor, reading: Any, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk (see `FrontEnd.step`). Return the logits (B, C) after it, and the new states."""
        return self.head(fields, lengths, None, reading), []


class HeadsStep(nn.Module):
    """A unidirectional `HeadsClassifier` that reads one chunk (see `ChunkStep`). It runs only inside the ONNX exporter.

    `heads`: streaming forms of the heads. `reader`: the head whose linear layer reads the windows, None without one.
    """

    more_outputs: tuple[str, ...] = ()

    def __init__(self, network: Any, heads: Sequence[HeadStep], reader: Any):
        super().__init__()
        self.network, self.reader = network, reader
        self.heads = nn.ModuleList(heads)
        self.of_front = network.front.step_states()
        self.states: list[State] = list(self.of_front)
        for index, head in enumerate(heads):
            self.states += [state._replace(name=f"{index}_{state.name}") for state in head.states]

    def forward(self, fields: Fields, lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
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
        return {"logits": self.network.added([logits]), "states": after}
