"""Encoders: the part of a classifier that reads embedded tokens in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqclf.config.targets import arguments_of, build, check_arguments, locate, locate_subclass
from seqclf.data.field_spec import PARENTS
from seqclf.errors import InputError
from seqclf.models.interface import completed


class SequenceEncoder(nn.Module):
    """Base class of encoders: embedded tokens (B, T, `input_size`) → outputs (B, T', `size`).

    A constructor takes `input_size` and the arguments of its config, by name. It sets `size`, the channels of an
    output. Pooling `last` reads two ends of a sequence: the last output, and of the last `backward_size` channels the
    first output, because they have read the sequence from the right.

    An encoder may shorten time. The outputs of a sequence must depend on nothing but its tokens. Whatever lies beyond a
    length is undefined, in the input (it may be NaN) as in the output.

    Subclassing is a convenience: any `nn.Module` with `size` and this `forward` is an encoder, and may bring any of the
    other attributes and methods.

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
    structure: tuple[str, ...] = ()  # inputs that `forward` takes by name too: `parents` of the nodes of a tree

    def forward(
        self, tokens: Tensor, lengths: Tensor, host_lengths: np.ndarray | None
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        """Return outputs (B, T', `size`), their lengths (B,), 1 ≤ length ≤ T', and the same lengths on the host.

        `tokens`: (B, T, `input_size`) float. `lengths`: (B,) int64. `host_lengths`: (B,) NumPy array for packing, None
        during the export to ONNX.
        """
        raise NotImplementedError

    def onnx_form(self) -> nn.Module:
        """Return the module that is exported in place of this one: the same forward, in operations that ONNX has.

        Modules inside of the returned one are replaced in the same way.
        """
        return self

    def step_form(self) -> Any:
        """Return the module that reads a sequence chunk by chunk in the export, None if the encoder cannot.

        It has `states`, a list of `State`. Its forward takes the tokens (B, T, `input_size`) of a chunk, the lengths
        (B,) of the chunk, and the states, each (B, *shape) in their order. It returns outputs (B, T, `size`) and the
        states at the length of each row. Chunk by chunk it must give the outputs of the whole sequence.
        """
        return None

    def walkthrough_stages(self, recorded: Any, batch: Any, outputs: Any) -> Iterable[Any] | None:
        """Return the stages (`Stage`) that `seqclf walkthrough` shows, None for one of the outputs alone."""
        return None


def as_encoder(module: Any) -> SequenceEncoder:
    """Return a module as an encoder, with the defaults where it has nothing of its own."""
    return completed(module, SequenceEncoder)


def reads_trees(model: Mapping[str, Any]) -> bool:
    """Return True if the encoder in the config of a model reads the nodes of trees.

    >>> reads_trees({"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}})
    True
    """
    target = model.get("encoder", {}).get("_target_")
    return target is not None and PARENTS in getattr(locate(target, "model.encoder._target_"), "structure", ())


def build_encoder(
    encoder: Mapping[str, Any], input_size: int, arguments: Mapping[str, Any], optional: Mapping[str, Any]
) -> Any:
    """Build the encoder of a `_target_` dict.

    `arguments`: more arguments, which the encoder must know. `optional`: those that it gets if it knows them. A key of
    the dict comes before both. Raises InputError, which names the key, on an argument that the encoder does not take.
    """
    if "_target_" not in encoder:
        raise InputError("model.encoder", "names no class", "set model.encoder._target_")
    located = locate_subclass(encoder["_target_"], nn.Module, "model.encoder._target_")
    settings = {name: value for name, value in encoder.items() if name != "_target_"}
    parameters = set(arguments_of(located).names)
    taken = {name: value for name, value in optional.items() if name in parameters and name not in settings}
    provided = {"input_size", *taken}
    # With all parameters, so that none counts as missing before the arguments beside the block were looked at.
    check_arguments("model.encoder", located, [*settings, *(parameters - provided)], provided)
    check_arguments("model", located, [*arguments, *settings], provided)
    extra = {name: value for name, value in {**taken, **arguments}.items() if name not in settings}
    built = build(encoder, nn.Module, "model.encoder._target_", input_size=input_size, **extra)
    if not isinstance(getattr(built, "size", None), int):
        raise InputError(
            f"model.encoder._target_={encoder['_target_']}",
            "has no attribute size",
            "set it to the channels of an output",
        )
    return built
