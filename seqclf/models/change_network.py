"""Changes of a network in training: its settings, its weights, which continue those of the old one, and frozen modules.

A layer is widened by copying its units, as in Net2Net (Chen et al. 2016). The weight of a unit in the next layer is
divided among its copies, unequally, so that the function stays and training makes the copies different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqclf.config.build import Config
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.auto.heads_classifier import HeadsClassifier
from seqclf.models.auto.recurrent_head import RecurrentHead
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.ensemble import Ensemble, build_classifier
from seqclf.models.rnn.recurrent import Recurrent
from seqclf.settings.typed_text import did_you_mean, label_text

CLASSIFIER = "seqclf.models.classifier.EncoderClassifier"
RECURRENT = "seqclf.models.rnn.recurrent.Recurrent"
HEADS = "seqclf.models.auto.heads_classifier.HeadsClassifier"


def changed_config(model: Config, changes: Mapping[str, Any], key: str) -> Config:
    """Return a copy of a model config with new values, or raise an InputError that begins with `key`.

    Added layers are residual, because a residual layer is initially the identity.

    >>> model = {"_target_": CLASSIFIER, "encoder": {"_target_": RECURRENT}, "layers": 1}
    >>> changed_config(model, {"layers": 3}, "structure[0]")["residual_layers"]
    2
    """
    encoder = dict(model.get("encoder", {}))
    changed = {**model, "encoder": encoder} if encoder else dict(model)
    before, new = {**model, **encoder}, dict(changes)
    for name, value in changes.items():
        entry = f"{key}.{name}={label_text(value)}"
        if not _is_recurrent(model):
            target = (encoder if model["_target_"] == CLASSIFIER else model)["_target_"]
            remedy = "choose model=lstm, gru, rnn or auto with its recurrent head, or freeze and unfreeze alone"
            raise InputError(entry, f"cannot change in {target}", remedy)
        if value == before[name]:
            raise InputError(entry, "is the value already", "remove it")
        # A network of heads learns its width from the data, so "auto" is compared later.
        if name == "hidden_size" and before[name] != "auto" and value < before[name]:
            raise InputError(entry, f"must be above {before[name]}, its value", "a model grows only")
        if name == "layers":
            new["residual_layers"] = max(0, before.get("residual_layers", 0) + value - before["layers"])
    for name, value in new.items():
        (encoder if name in encoder else changed)[name] = value
    return changed


def _is_recurrent(model: Config) -> bool:
    if model["_target_"] == HEADS:
        return model["heads"] == "auto" or "recurrent" in model["heads"]
    return model["_target_"] == CLASSIFIER and model["encoder"]["_target_"] == RECURRENT


def set_trainable(network: Any, modules: Sequence[str], trainable: bool, key: str) -> None:
    """Freeze or unfreeze (`trainable`) the weights of modules, in an ensemble those of all members.

    `modules`: dotted names, such as `embedding` or `encoder.forward_layers.0`; a network of heads has those of its
    recurrent head, too. A frozen weight gets no gradient, so an optimizer does not change it. Raises an InputError that
    begins with `key` if a module does not exist, or if its weights are already as requested.
    """
    for name in modules:
        weights = _weights(network, name, key)
        if all(weight.requires_grad == trainable for weight in weights):
            state = "is not frozen" if trainable else "has no weight that learns"
            raise InputError(f"{key}={name}", state, "remove it")
        for weight in weights:
            weight.requires_grad_(trainable)


def _weights(network: Any, name: str, key: str) -> list[nn.Parameter]:
    members = list(network.members) if isinstance(network, Ensemble) else [network]
    owners = [members, [head for head in network.modules() if isinstance(head, RecurrentHead)]]
    for parts in filter(None, owners):
        with suppress(AttributeError):
            found = [part.get_submodule(name) if name else part for part in parts]
            return [weight for module in found for weight in module.parameters()]
    modules = [each for parts in owners for part in parts[:1] for each in part.named_modules()]
    names = [known for known, module in modules if known and any(True for _ in module.parameters())]
    top = ", ".join(known for known in names if "." not in known)
    remedy = did_you_mean(name, names) or f"write one of {top}, or a part of one"
    raise InputError(f"{key}={name}", "no such module", remedy)


def frozen_weights(network: nn.Module) -> list[str]:
    return [name for name, weight in network.named_parameters() if not weight.requires_grad]


def freeze_weights(network: nn.Module, names: Sequence[str]) -> None:
    """Freeze the weights in `names`, a list of weight names that `frozen_weights` returned."""
    weights = dict(network.named_parameters())
    for name in names:
        if name not in weights:
            raise InputError("frozen", f"{name} is no weight of the model")
        weights[name].requires_grad_(False)


GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Sizes of the blocks along each axis of a weight, such as the gates of an LSTM. Units after the blocks never change.
Blocks = tuple[list[int], ...]


class Widening(NamedTuple):
    """Computation of a widened weight: for each axis, (N,) int64 index of the old unit that each new unit copies.

    `shares`: parts of the old weights that the copies get, None for vectors.
    """

    units: tuple[Tensor, ...]
    shares: Tensor | None

    def __call__(self, old: Tensor) -> Tensor:
        for axis, units in enumerate(self.units):
            old = old.index_select(axis, units.to(old.device))
        return old if self.shares is None else old * self.shares.to(old)


class ChangedNetwork(NamedTuple):
    """A changed network, the `Widening` of each tensor whose shape changed, and True if its logits are as before."""

    network: Any
    widenings: dict[str, Widening]
    preserves: bool


@torch.no_grad()
def change_network(
    network: Any, config: Config, fields: Sequence[FieldSpec], num_classes: int, seed: int
) -> ChangedNetwork:
    """Build the network of a new config, with weights that continue the weights of the old network.

    The new network is on the same device, reads the same fields, and takes over unchanged weights as the same
    parameters: the caller must not use the old one afterwards. `seed`: random seed for the new weights.
    """
    example = next(network.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        with torch.device("meta" if example.is_meta else "cpu"):
            changed = build_classifier(config, fields, num_classes)
        changed.to(dtype=example.dtype, device=example.device)
        widenings = _widenings(network, changed)
    parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
    for name, _ in list(changed.named_parameters()):
        if name in parameters:
            weight = parameters[name]
            if name in widenings:
                weight = nn.Parameter(widenings[name](weight), requires_grad=weight.requires_grad)
            owner, _, leaf = name.rpartition(".")
            setattr(changed.get_submodule(owner), leaf, weight)
    for name, values in changed.named_buffers():
        values.copy_(widenings[name](buffers[name]) if name in widenings else buffers[name])
    for module in changed.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN needs all weights of a layer in one block of memory
    changed.train(network.training)
    return ChangedNetwork(changed, widenings, _preserves(network, changed))


def _widenings(old: nn.Module, new: nn.Module) -> dict[str, Widening]:
    # The shares are drawn by the default generator of the CPU.
    tensors, new_blocks = old.state_dict(), _blocks_of(new)
    return {
        name: _widening(tensors[name].shape, blocks, new_blocks[name])
        for name, blocks in _blocks_of(old).items()
        if name in tensors and blocks != new_blocks.get(name, blocks)
    }


def _widening(shape: Sequence[int], old: Blocks, new: Blocks) -> Widening:
    units = tuple(map(copied_units, old, new, shape))
    if len(shape) == 1:
        return Widening(units, None)
    rows, columns = units
    raw = 0.5 + torch.rand(len(rows), len(columns), dtype=torch.float64)  # each of two copies gets 1/4 to 3/4
    totals = torch.zeros(len(rows), shape[1], dtype=torch.float64).index_add(1, columns, raw)
    return Widening(units, raw / totals[:, columns])


def copied_units(old: Sequence[int], new: Sequence[int], size: int) -> Tensor:
    """Return the old unit that each new unit of an axis copies. `old`, `new`: sizes of its blocks. `size`: old size.

    >>> copied_units([2, 1], [3, 1], size=4).tolist()
    [0, 1, 0, 2, 3]
    """
    starts = [0, *accumulate(old)]
    blocks = [start + torch.arange(after) % before for start, before, after in zip(starts, old, new, strict=False)]
    return torch.cat([*blocks, torch.arange(starts[-1], size)])


def _blocks_of(network: nn.Module) -> dict[str, Blocks]:
    known = [(path, BLOCKS[type(part)](part)) for path, part in network.named_modules() if type(part) in BLOCKS]
    return {f"{path}.{name}".lstrip("."): blocks for path, of_part in known for name, blocks in of_part.items()}


def _outputs(stack: Any) -> list[int]:
    return [stack.forward_layers[0].hidden_size] * (2 if stack.backward_layers else 1)


def _of_stack(stack: Any) -> dict[str, Blocks]:
    outputs = _outputs(stack)
    gates = outputs[:1] * GATES[stack.cell]
    blocks: dict[str, Blocks] = {}
    for direction in ("forward_layers", "backward_layers"):
        for index in range(len(getattr(stack, direction))):
            blocks[f"{direction}.{index}.weight_ih_l0"] = (gates, outputs if index else [])
            blocks[f"{direction}.{index}.weight_hh_l0"] = (gates, outputs[:1])
            blocks |= {f"{direction}.{index}.{bias}_l0": (gates,) for bias in ("bias_ih", "bias_hh")}
    return blocks


def _of_classifier(network: Any) -> dict[str, Blocks]:
    outputs = _outputs(network.encoder)
    pooled = outputs * len(network.pooling.kinds)
    return {"pooling.score.weight": ([], outputs), **_of_norm("norm", pooled), **_of_readers(pooled)}


def _of_head(head: Any) -> dict[str, Blocks]:
    pooled = [head.project.out_features, *_outputs(head.recurrent)] * len(head.pooling.kinds)
    return {**_of_norm("pooled_norm", pooled), **_of_readers(pooled)}


def _of_norm(name: str, pooled: list[int]) -> dict[str, Blocks]:
    return {f"{name}.{values}": (pooled,) for values in ("weight", "bias", "mean", "variance")}


def _of_readers(pooled: list[int]) -> dict[str, Blocks]:
    return {"static.hidden.weight": ([], pooled), "output.weight": ([], pooled)}


BLOCKS: Mapping[type, Callable[[Any], dict[str, Blocks]]] = {
    Recurrent: _of_stack,
    EncoderClassifier: _of_classifier,
    RecurrentHead: _of_head,
}


def _preserves(old: nn.Module, new: nn.Module) -> bool:
    # The norm of a classifier is a mean over units, which sees that some units have more copies than others. The norm
    # of a head is a mean over rows.
    is_even = not any(isinstance(module, HeadsClassifier) for module in new.modules())
    before, after = ([part for part in each.modules() if isinstance(part, Recurrent)] for each in (old, new))
    return all(
        len(one.forward_layers) <= len(other.forward_layers) and not (is_even and other.size % one.size)
        for one, other in zip(before, after, strict=True)
    )
