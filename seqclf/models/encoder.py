"""Base class of encoders. An encoder is the part of a classifier that reads the embedded tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqclf.config.build import arguments_of, build, locate, locate_subclass
from seqclf.data.field_spec import PARENTS, FieldSpec
from seqclf.errors import InputError


class SequenceEncoder(nn.Module):
    """Base class of encoders: embedded tokens (B, T, `input_size`) → outputs (B, T', `size`).

    The constructor gets `input_size`, the arguments in the encoder's config, and the specs of the fields if it takes
    `field_specs`. It must set `size`, the number of channels of each output. A bidirectional encoder must also set
    `backward_size`: so many last channels belong to the direction that reads from the last token to the first one, and
    the pooling `last` takes them from the first output.

    The time axis may become shorter (T' < T). The outputs for a sequence must depend only on the tokens of the
    sequence. Padding may have any value, in the tokens and in the outputs, and may be NaN.

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

    def forward(
        self, tokens: Tensor, lengths: Tensor, host_lengths: np.ndarray | None
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        """Return the outputs (B, T', `size`), the lengths (B,) of the outputs, and the same lengths as a NumPy array.

        Each returned length is from 1 to T'. `tokens`: (B, T, `input_size`) float. `lengths`: (B,) int64.
        `host_lengths`: the lengths as a NumPy array, for packed sequences; `None` during the export to ONNX.
        """
        raise NotImplementedError

    def onnx_form(self) -> nn.Module:
        """Return the module that is exported instead: the same function, in operations that ONNX supports.

        A module inside of it that has a method `onnx_form` is replaced too.
        """
        return self

    def streaming(self) -> Any:
        """Return the streaming form of this encoder for the ONNX export, or `None` if there is no streaming form.

        It is a module with an attribute `states`, a list of `State`. Its `forward` gets the tokens (B, T, `input_size`)
        of a chunk, the number of tokens (B,) of each sequence in the chunk, a list of states (B, *shape), and the
        fields in `structure` as keyword arguments. It returns the outputs (B, T, `size`) and the states after the last
        token. Reading in chunks must give the same outputs as reading the whole sequence.
        """
        return None


def reads_trees(model: Mapping[str, Any]) -> bool:
    """Return True if the encoder in a model config reads trees.

    >>> reads_trees({"encoder": {"_target_": "seqclf.models.trees.tree_lstm.TreeLSTM"}})
    True
    """
    target = model.get("encoder", {}).get("_target_")
    return target is not None and PARENTS in getattr(locate(target, "model.encoder._target_"), "structure", ())


def check_structure(names: Iterable[str], fields: Iterable[FieldSpec], where: str) -> None:
    """Raise InputError if the data lacks a field that an encoder reads (see `SequenceEncoder.structure`).

    `where`: config key and class of the encoder, for the error text.
    """
    present = [field["name"] for field in fields]
    for name in names:
        if name not in present:
            what, remedy = f"the field {name}, and the data has no such field", "rename a field"
            if name == PARENTS:
                what, remedy = "trees, and the data has none", "set the kind of a field to tree"
            raise InputError(
                where, f"reads {what} (fields: {', '.join(present)})", f"{remedy}, or choose another model"
            )


def build_encoder(
    encoder: Mapping[str, Any], input_size: int, arguments: Mapping[str, Any], optional: Mapping[str, Any]
) -> Any:
    """Build the encoder that a config describes.

    `encoder`: config with the class in `_target_`, whose values take precedence. `arguments`: further keyword
    arguments. `optional`: arguments that are passed only if the signature of the constructor contains them.
    """
    names = arguments_of(locate_subclass(encoder["_target_"], SequenceEncoder, "model.encoder._target_")).names
    taken = {name: value for name, value in optional.items() if name in names}
    settings = {**taken, **arguments, **encoder}
    built = build(settings, SequenceEncoder, "model.encoder._target_", input_size=input_size)
    if not isinstance(getattr(built, "size", None), int):
        raise InputError(
            f"model.encoder._target_={encoder['_target_']}",
            "has no attribute size",
            "set it to the channels of an output",
        )
    return built
