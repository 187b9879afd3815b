"""Sequence classifier: embedding → encoder → pooling → head, and the base class of encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from seqclf.config.build import arguments_of, build, locate, locate_subclass
from seqclf.data.field_spec import PARENTS, FieldSpec, token_specs
from seqclf.errors import InputError
from seqclf.models.embedding import FieldEmbedding, StaticFields
from seqclf.models.network import Fields, HostLengths, SequenceNetwork
from seqclf.models.pooling import Pooling, PoolingNames
from seqclf.models.streaming import ChunkStep
from seqclf.settings.base import Count, DropoutShare, NonNegative


class SequenceEncoder(nn.Module):
    """Base class of encoders: embedded tokens (B, T, `input_size`) → outputs (B, T', `size`).

    The constructor gets `input_size`, the arguments in the encoder's config, and the specs of the fields if it takes
    `field_specs`. It must set `size`, the number of channels of each output. A bidirectional encoder must also set
    `backward_size`: so many last channels belong to the direction that reads from the last token to the first one, and
    the pooling `last` takes them from the first output. The time axis may become shorter (T' < T). The outputs for a
    sequence must depend only on the tokens of the sequence. Padding may have any value, in the tokens and in the
    outputs, and may be NaN.

    >>> import numpy as np
    >>> import torch
    >>> class EverySecond(SequenceEncoder):
    ...     def __init__(self, input_size, *, hidden_size):
    ...         super().__init__()
    ...         self.size = hidden_size
    ...         self.linear = nn.Linear(input_size, hidden_size)
    ...
    ...     def forward(self, tokens, lengths, host_lengths):
    ...         host_lengths = None if host_lengths is None else (host_lengths + 1) // 2
    ...         return self.linear(tokens[:, ::2]), (lengths + 1) // 2, host_lengths
    >>> lengths = np.array([5, 2])
    >>> outputs, lengths, _ = EverySecond(3, hidden_size=8)(torch.zeros(2, 5, 3), torch.from_numpy(lengths), lengths)
    >>> outputs.shape, lengths
    (torch.Size([2, 3, 8]), tensor([3, 1]))
    """

    size: int
    backward_size: int = 0
    # Names of the fields that `forward` and the `streaming` get as encoded, as keyword arguments beside the embedded
    # tokens, such as `parents` for trees.
    structure: tuple[str, ...] = ()

    def forward(self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths) -> tuple[Tensor, Tensor, HostLengths]:
        """Return the outputs (B, T', `size`), the lengths (B,) of the outputs, and the same lengths as a NumPy array.

        Each returned length is from 1 to T'. `tokens`: (B, T, `input_size`) float. `lengths`: (B,) int64.
        `host_lengths`: the lengths as a NumPy array, for packed sequences; `None` during the export to ONNX.
        """
        raise NotImplementedError

    def onnx_form(self) -> nn.Module:
        """Return the module that is exported instead: the same function, in operations that ONNX supports."""
        return self

    def streaming(self) -> Any:
        """Return the streaming form of this encoder for the ONNX export, or `None` if there is no streaming form.

        It is a module with an attribute `states`, a list of `State`. Its `forward` gets the tokens (B, T, `input_size`)
        of a chunk, their numbers (B,), a list of states (B, *shape), and the fields in `structure` as keyword
        arguments. It returns the outputs (B, T, `size`), equal to those of whole sequences, and the states after them.
        """
        return None


def reads_trees(model: Mapping[str, Any]) -> bool:
    """Return True if the encoder in a model config reads trees.

    >>> reads_trees({"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}})
    True
    """
    target = model.get("encoder", {}).get("_target_")
    return target is not None and PARENTS in getattr(locate(target, "model.encoder._target_"), "structure", ())


def check_structure(names: Iterable[str], fields: Iterable[FieldSpec], where: str) -> None:
    """Raise InputError, which begins with `where`, if the data lacks a field that an encoder reads."""
    present = [field["name"] for field in fields]
    for name in names:
        if name not in present:
            what, remedy = f"the field {name}, and the data has no such field", "rename a field"
            if name == PARENTS:
                what, remedy = "trees, and the data has none", "set the kind of a field to tree"
            problem = f"reads {what} (fields: {', '.join(present)})"
            raise InputError(where, problem, f"{remedy}, or choose another model")


def build_encoder(
    encoder: Mapping[str, Any], input_size: int, arguments: Mapping[str, Any], optional: Mapping[str, Any]
) -> Any:
    """Build an encoder. Values of `encoder`, its config, take precedence; `optional` ones are those it may take."""
    names = arguments_of(locate_subclass(encoder["_target_"], SequenceEncoder, "model.encoder._target_")).names
    taken = {name: value for name, value in optional.items() if name in names}
    settings = {**taken, **arguments, **encoder}
    built = build(settings, SequenceEncoder, "model.encoder._target_", input_size=input_size)
    if not isinstance(getattr(built, "size", None), int):
        where = f"model.encoder._target_={encoder['_target_']}"
        raise InputError(where, "has no attribute size", "set it to the channels of an output")
    return built


class EncoderClassifier(SequenceNetwork):
    """Classifier of sequences of different lengths: embedding → encoder → pooling, joined by static fields → head.

    `encoder`: config of the encoder, with its class in `_target_`. `encoder_arguments`: further arguments of it.
    `dropout`: dropout probability for the embedded tokens and for the pooled vector, and the default of an encoder that
    takes `dropout`.

    >>> import numpy as np
    >>> import torch
    >>> model = EncoderClassifier(
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
            encoder, self.embedding.size, encoder_arguments, {"dropout": dropout, "field_specs": of_tokens}
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

    def embedding_layers(self) -> dict[str, nn.Module]:
        return {"pooled": self.output}

    def streaming(self) -> ChunkStep | None:
        encoder = self.encoder.streaming()
        return None if encoder is None else ChunkStep(self, encoder)
