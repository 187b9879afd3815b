"""Sequence classifier: embedding → encoder → pooling → head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, token_specs
from seqclf.models.embedding import FieldEmbedding, StaticFields
from seqclf.models.encoder import SequenceEncoder, build_encoder, check_structure
from seqclf.models.network import Fields, HostLengths, SequenceNetwork
from seqclf.models.options import PoolingNames
from seqclf.models.pooling import Pooling
from seqclf.models.streaming import ChunkStep
from seqclf.settings.base import Count, DropoutShare, NonNegative


class SequenceClassifier(SequenceNetwork):
    """Classifier of sequences of different lengths: embedding → encoder → pooling, joined by static fields → head.

    `fields`: specs of the encoded fields (see `FieldEmbedding`). `encoder`: config of the encoder, with its class in
    `_target_`. `encoder_arguments`: further arguments of the encoder. `dropout`: dropout probability for the embedded
    tokens and for the pooled vector, and the default of an encoder whose constructor accepts `dropout`.

    >>> import numpy as np
    >>> import torch
    >>> model = SequenceClassifier(
    ...     [{"name": "word", "kind": "category", "size": 50}],
    ...     num_classes=3,
    ...     encoder={"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    ...     cell="gru",
    ...     hidden_size=8,
    ...     dropout=0.1,
    ... )
    >>> lengths = np.array([5, 2])
    >>> model({"word": torch.randint(1, 50, (2, 5))}, torch.from_numpy(lengths), lengths).shape
    torch.Size([2, 3])
    """

    reads_static = True
    # Arguments of this class whose values a subclass fixes. A config of the subclass cannot set these arguments.
    fixed_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(
        self,
        fields: Sequence[FieldSpec],
        num_classes: int,
        *,
        encoder: Mapping[str, Any],
        embedding_size: Count = 64,
        pooling: PoolingNames = "max",
        dropout: DropoutShare = 0.25,
        token_dropout: DropoutShare = 0.1,
        number_noise: NonNegative = 0.3,
        **encoder_arguments: Any,
    ):
        super().__init__()
        of_tokens = [field for field in fields if not field.get("static")]
        self.embedding = FieldEmbedding(
            token_specs(fields), embedding_size=embedding_size, token_dropout=token_dropout, number_noise=number_noise
        )
        self.encoder = build_encoder(
            encoder,
            self.embedding.size,
            encoder_arguments,
            {"dropout": dropout, "field_specs": of_tokens},
        )
        self.check_encoder(self.encoder)
        self.structure = tuple(self.encoder.structure)  # names of the fields that the encoder gets as encoded
        check_structure(self.structure, fields, f"model.encoder._target_={encoder['_target_']}")
        self.pooling = Pooling(pooling, self.encoder.size, self.encoder.backward_size)
        # The pooled vector is normalized, because the pooling `max` results in larger values for longer sequences.
        self.norm = nn.LayerNorm(self.pooling.size)
        self.embedding_dropout = nn.Dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        self.static = StaticFields(fields, self.pooling.size)
        self.output = nn.Linear(self.static.size, num_classes)

    @classmethod
    def check_encoder(cls, encoder: SequenceEncoder) -> None:
        """Raise InputError, with the config key, if this class cannot use `encoder`. A subclass may reject some."""

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        """Return logits (B, C). See `SequenceNetwork.forward`."""
        outputs, output_lengths = self.encode(fields, lengths, host_lengths)
        return self.head(self.pooling(outputs, output_lengths), fields)

    def encode(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T', size) of the encoder, and their lengths (B,)."""
        embedded = self.embedding_dropout(self.embedding(fields))
        structure = {name: fields[name] for name in self.structure}
        outputs, output_lengths, _ = self.encoder(embedded, lengths, host_lengths, **structure)
        return outputs, output_lengths

    def join(self, pooled: Tensor, fields: Fields) -> Tensor:
        """Return normalized pooled vectors (N, P) or (N, T, P), with the static fields joined to them."""
        return self.static(self.norm(pooled), fields)

    def head(self, pooled: Tensor, fields: Fields = MappingProxyType({})) -> Tensor:
        """Return the logits (N, C) for pooled vectors (N, P). `fields`: dict static field → its values (N, …)."""
        return self.output(self.dropout(self.join(pooled, fields)))

    def streaming(self) -> ChunkStep | None:
        """Return the streaming form of this classifier, or `None` if the encoder cannot read a sequence in chunks."""
        encoder = self.encoder.streaming()
        return None if encoder is None else ChunkStep(self, encoder)
