"""Mapping of the weights of a changed network to the weights of the old network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.embedding import NumberProjection
from seqclf.models.heads.network import HeadsClassifier
from seqclf.models.heads.recurrent_head import RecurrentHead
from seqclf.models.rnn.recurrent import Recurrent
from seqclf.models.structure.axes import Axes, Axis, blocks, is_even, kept, widened
from seqclf.models.transformer import Transformer
from seqclf.models.trees.tree_lstm import TreeLSTM

# The functions in this file annotate modules as Any, because PyTorch annotates every submodule as Module or Tensor.
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


class Continued(NamedTuple):
    """Mapping of the weights and outputs of a changed module to the weights and outputs of the old module.

    `axes`: dict weight name → axes, for each weight that continues an old weight (see `Axis`). `outputs`: (N,) int64
    index of the old output that each new output continues. `preserves`: True if each new output always equals
    the old output that it continues.
    """

    axes: dict[str, Axes]
    outputs: Tensor
    preserves: bool = True


def unchanged(module: nn.Module) -> dict[str, Axes]:
    """Return a dict weight name → axes, for a module without changes. Each unit continues itself."""
    return {name: tuple(Axis(kept(size)) for size in weight.shape) for name, weight in module.named_parameters()}


def continue_classifier(old: SequenceClassifier, new: SequenceClassifier) -> Continued:
    """Return the mapping from a changed classifier to the old classifier.

    Both classifiers must read the same fields.
    """
    embedding = _embedding(old.embedding, new.embedding)
    encoder = _encoder(old.encoder, new.encoder, embedding.outputs)
    pooling = _pooling(old, encoder.outputs)
    pooled = pooling.outputs
    classes = old.output.out_features
    axes: dict[str, Axes] = {
        "norm.weight": (Axis(pooled),),
        "norm.bias": (Axis(pooled),),
        "output.bias": (Axis(kept(classes)),),
    }
    static, joined = _static(old.static, pooled)
    axes |= {"output.weight": (Axis(kept(classes)), Axis(joined, summed=True)), **_below("static", static)}
    for name, part in (("embedding", embedding), ("encoder", encoder), ("pooling", pooling)):
        axes |= _below(name, part.axes)
    if isinstance(old, AdaptiveClassifier):
        axes |= {
            "halting.outputs.weight": (Axis(kept(1)), Axis(encoder.outputs, summed=True)),
            "halting.outputs.bias": (Axis(kept(1)),),
            "halting.certainty": (),
        }
    # The pooled vector is normalized. If some units have more copies than others, the mean and variance of the pooled
    # vector change, and the logits change too.
    preserves = encoder.preserves and is_even(pooled)
    return Continued(axes, pooled, preserves)


def continue_heads(old: HeadsClassifier, new: HeadsClassifier) -> Continued:
    """Return the mapping from a changed network of heads to the old one. Only its recurrent head changes its sizes."""
    axes, preserves = unchanged(old), True
    for index, (before, after) in enumerate(zip(old.heads, new.heads, strict=True)):
        if not isinstance(before, RecurrentHead):
            continue
        prefix = f"heads.{index}"
        axes = {name: of_weight for name, of_weight in axes.items() if not name.startswith(f"{prefix}.recurrent.")}
        size = before.project.out_features
        recurrent = _recurrent(before.recurrent, after.recurrent, kept(size))
        outputs = torch.cat([kept(size), size + recurrent.outputs])
        pooled = torch.cat([part * (size + before.recurrent.size) + outputs for part in range(2)])
        axes |= _below(f"{prefix}.recurrent", recurrent.axes)
        # The norm is that of a batch, so each copy of a unit is normalized as the unit.
        axes |= {f"{prefix}.pooled_norm.{name}": (Axis(pooled),) for name in ("weight", "bias", "mean", "variance")}
        static, joined = _static(before.static, pooled)
        axes |= _below(f"{prefix}.static", static)
        axes[f"{prefix}.output.weight"] = (Axis(kept(before.output.out_features)), Axis(joined, summed=True))
        preserves &= recurrent.preserves
    return Continued(axes, kept(0), preserves)


def _static(old: Any, pooled: Tensor) -> tuple[dict[str, Axes], Tensor]:
    """Return the axes of a layer `StaticFields`, and the old unit that each of its outputs continues."""
    axes, size = unchanged(old), old.pooled_size
    if old.hidden is None:
        return axes, pooled
    vectors, hidden = (size + kept(count) for count in (old.embedding.size, old.hidden.out_features))
    axes["hidden.weight"] = (Axis(kept(old.hidden.out_features)), Axis(torch.cat([pooled, vectors]), summed=True))
    return axes, torch.cat([pooled, hidden])


def _below(name: str, axes: dict[str, Axes]) -> dict[str, Axes]:
    return {f"{name}.{inner}": of_weight for inner, of_weight in axes.items()}


def _embedding(old: Any, new: Any) -> Continued:
    axes: dict[str, Axes] = {}
    outputs, start = [], 0
    for index, (before, after) in enumerate(zip(old.layers, new.layers, strict=True)):
        projects = isinstance(before, NumberProjection)
        size, new_size = (int(layer.weight.shape[0 if projects else 1]) for layer in (before, after))
        units = widened(size, new_size)
        if projects:
            axes |= {f"layers.{index}.weight": (Axis(units), Axis(kept(before.in_features)))}
            axes |= {f"layers.{index}.bias": (Axis(units),)}
        else:
            axes |= {f"layers.{index}.weight": (Axis(kept(before.num_embeddings)), Axis(units))}
        outputs.append(start + units)
        start += size
    return Continued(axes, torch.cat(outputs))


def _encoder(old: Any, new: Any, inputs: Tensor) -> Continued:
    for kind, rule in WIDENED.items():
        if type(old) is kind:
            return rule(old, new, inputs)
    # Any other encoder keeps its width. Layers are added and removed at the end of its stack.
    known, names = unchanged(old), {name for name, _ in new.named_parameters()}
    axes = {name: of_weight for name, of_weight in known.items() if name in names}
    if type(old) in FIRST:
        output, _ = axes[FIRST[type(old)]]
        axes[FIRST[type(old)]] = (output, Axis(inputs, summed=True))
    return Continued(axes, kept(old.size), len(axes) == len(known))


def _recurrent(old: Any, new: Any, inputs: Tensor) -> Continued:
    size, new_size = (stack.forward_layers[0].hidden_size for stack in (old, new))
    hidden = widened(size, new_size)
    outputs = torch.cat([hidden, size + hidden]) if new.backward_layers else hidden
    axes: dict[str, Axes] = {}
    rows = Axis(blocks(hidden, size, GATES[old.cell]))
    for direction in ("forward_layers", "backward_layers"):
        for index in range(min(len(getattr(old, direction)), len(getattr(new, direction)))):
            read = Axis(outputs if index else inputs, summed=True)
            axes[f"{direction}.{index}.weight_ih_l0"] = (rows, read)
            axes[f"{direction}.{index}.weight_hh_l0"] = (rows, Axis(hidden, summed=True))
            axes |= {f"{direction}.{index}.{name}_l0": (rows,) for name in ("bias_ih", "bias_hh")}
    # Layers are added and removed at the end of the stack, so the index of the first residual layer does not change.
    axes |= {f"scales.{index}": (Axis(kept(1)),) for index in range(min(len(old.scales), len(new.scales)))}
    return Continued(axes, outputs, len(old.forward_layers) <= len(new.forward_layers))


# dict encoder → rule for an encoder whose width can change
WIDENED: dict[type, Callable[[Any, Any, Tensor], Continued]] = {Recurrent: _recurrent}
# dict encoder → name of the weight that reads the embedded tokens, whose number of channels can change
FIRST: dict[type, str] = {Transformer: "input.weight", TreeLSTM: "input.weight"}


def _pooling(old: SequenceClassifier, outputs: Tensor) -> Continued:
    parts = [index * old.encoder.size + outputs for index in range(len(old.pooling.kinds))]
    axes: dict[str, Axes] = {}
    if old.pooling.score is not None:
        axes = {"score.weight": (Axis(kept(1)), Axis(outputs, summed=True)), "score.bias": (Axis(kept(1)),)}
    return Continued(axes, torch.cat(parts))


def start_as_identity(old: Any, new: Any) -> None:
    """Zero the output weights of the blocks that are added to a transformer.

    With zero output weights, an added block is the identity. In other encoders, an added layer is the identity from the
    start, so this function changes nothing.
    """
    if type(old) is not Transformer:
        return
    for block in new.blocks[len(old.blocks) :]:
        for layer in (block.attention.output, block.feed_forward.outer):
            for weight in layer.parameters():
                nn.init.zeros_(weight)
