"""Sequence classifier: embedding → encoder → pooling → head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from seqclf.config.argument_types import checks_values
from seqclf.config.options import Count, NonNegative
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.chunk_step import ChunkStep
from seqclf.models.embedding import FieldEmbedding, TokenDropout
from seqclf.models.encoder import SequenceEncoder, as_encoder, build_encoder
from seqclf.models.network import SequenceNetwork
from seqclf.models.options import DropoutShare, PoolingNames
from seqclf.models.pooling import Pooling


class SequenceClassifier(SequenceNetwork):
    """Classifies sequences of different lengths. The logits of a sequence depend on nothing but its tokens.

    `fields`: specs of the encoded fields (see `FieldEmbedding`). `encoder`: `_target_` dict of a `SequenceEncoder`. Its
    arguments may also be given by name, as `encoder_arguments`. `dropout` is applied to the embedded tokens and to the
    pooled vector, which is layer-normalised. With `variational` a sequence loses the same features at all its tokens.
    An encoder that takes `dropout` or `variational` gets the same values. A key of `encoder` itself overrides them.

    >>> import torch
    >>> model = SequenceClassifier(
    ...     [{"name": "word", "kind": "category", "size": 50}],
    ...     num_classes=3,
    ...     encoder={"_target_": "seqclf.models.recurrent.Recurrent"},
    ...     cell="gru",
    ...     hidden_size=8,
    ...     dropout=0.1,
    ... )
    >>> lengths = np.array([5, 2])
    >>> model({"word": torch.randint(1, 50, (2, 5))}, torch.from_numpy(lengths), lengths).shape
    torch.Size([2, 3])
    """

    # Arguments of this class that a subclass sets itself, so that no key of a config can.
    fixed_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @checks_values("model")
    def __init__(
        self,
        fields: Sequence[FieldSpec],
        num_classes: int,
        *,
        encoder: Mapping[str, Any],
        embedding_size: Count = 64,
        pooling: PoolingNames = "max",
        dropout: DropoutShare = 0.25,
        variational: bool = False,
        token_dropout: DropoutShare = 0.1,
        number_noise: NonNegative = 0.3,
        **encoder_arguments: Any,
    ):
        super().__init__()
        self.embedding = FieldEmbedding(
            fields, embedding_size=embedding_size, token_dropout=token_dropout, number_noise=number_noise
        )
        self.encoder = build_encoder(
            encoder, self.embedding.size, encoder_arguments, {"dropout": dropout, "variational": variational}
        )
        reader = as_encoder(self.encoder)
        self.check_encoder(reader)
        self.structure = tuple(reader.structure)  # inputs beside the tokens that it reads by name
        if set(self.structure) - {field["name"] for field in fields}:
            raise InputError(
                f"model.encoder._target_={encoder['_target_']}",
                f"reads trees, and the data has none (fields: {', '.join(field['name'] for field in fields)})",
                "set the kind of a field to tree, or choose another model",
            )
        self.pooling = Pooling(pooling, reader.size, reader.backward_size)
        # A maximum grows with the number of tokens; after the norm the head sees one scale.
        self.norm = nn.LayerNorm(self.pooling.size)
        self.embedding_dropout = TokenDropout(dropout, variational)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(self.pooling.size, num_classes)

    @classmethod
    def check_encoder(cls, encoder: SequenceEncoder) -> None:
        """Raise InputError, which names the key, for an encoder that this class has no use for. All are of use here."""

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        """Start the embedding of the field `name` from pretrained `vectors` (size, D)."""
        self.embedding.load_vectors(name, vectors)

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Tensor:
        """Return logits (B, C). See `SequenceNetwork.forward`."""
        embedded = self.embedding_dropout(self.embedding(fields))
        structure = {name: fields[name] for name in self.structure}
        outputs, output_lengths, _ = self.encoder(embedded, lengths, host_lengths, **structure)
        return self.head(self.pooling(outputs, output_lengths))

    def head(self, pooled: Tensor) -> Tensor:
        """Return logits (N, C) of pooled vectors (N, `pooling.size`)."""
        return self.output(self.dropout(self.norm(pooled)))

    def step_form(self) -> ChunkStep | None:
        """Return the network that reads chunk by chunk in the export, None if the encoder cannot."""
        encoder = as_encoder(self.encoder).step_form()
        return None if encoder is None else ChunkStep(self, encoder)
