"""The stages of a network between the padded batch and the logits, from the recorded calls of its modules.

A stage is shown for each part of the network (a direct child) and for each layer (an entry of a `ModuleList`) whose
output is a vector for each token or for each row. This holds for networks and encoders of other packages too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqclf.documents.blocks import HeatMaps, Text
from seqclf.models.embedding import FieldEmbedding, TokenDropout
from seqclf.models.ensemble import Ensemble
from seqclf.models.pooling import Pooling, token_mask
from seqclf.models.rnn.recurrent import flip_order, reorder
from seqclf.models.transformer import SelfAttention, rotate
from seqclf.models.trees.tree_lstm import TreeLSTM
from seqclf.training.debugging.module_hooks import leaves
from seqclf.walkthrough.heat_map import MAX_CHANNELS, ShownBatch, pair_maps, row_map, token_maps, varying_channels
from seqclf.walkthrough.recording import Call, as_array
from seqclf.walkthrough.stages import Stage

MAX_ATTENTION_TOKENS = 512  # maximum length of a row; attention weights of longer rows have too many pairs of tokens
BACKWARD = "backward_layers"  # name of the layers of a recurrent encoder that read each row from its end
EMBEDDED = (
    "Embedded tokens",
    "Every token becomes a vector, whose numbers are its channels and which training has adjusted: an id looks up its "
    "row in a table, and numbers go through a linear layer. Equal tokens have equal vectors, wherever they stand. The "
    "batch has one axis more. The vectors of several fields stand one after the other.",
)
# Explanations by class of the module. A module of another class is explained by the first line of its docstring.
TEXTS: dict[type[nn.Module], tuple[str, str]] = {
    FieldEmbedding: EMBEDDED,
    nn.Embedding: EMBEDDED,
    nn.RNNBase: (
        "Hidden states",
        "The layer reads a row token by token. The hidden state at a token is made of that token and of the state "
        "before it, so it knows everything up to there.",
    ),
    TreeLSTM: (
        "Encoder outputs",
        "A node needs the states of its children and nothing else. So all nodes of one depth are computed together, "
        "over all trees of the batch: the deepest first, the roots last. The output is the state of each root, which "
        "knows the whole tree.",
    ),
    Pooling: ("Pooled rows", "One vector for each row, whatever its length. The axis of the tokens is gone."),
}
BACKWARD_TEXT = (
    " This layer reads each row from its own last token to its first, never from the padding. The states are shown in "
    "the order of the row."
)


def network_stages(network: nn.Module, calls: Mapping[str, Call], batch: ShownBatch) -> list[Stage]:
    """Return the stages of a network, in order of computation. Of an ensemble, they are those of its first member.

    `calls`: see `record`.
    """
    logits = as_array(calls["members.0" if isinstance(network, Ensemble) else ""].output)
    if isinstance(network, Ensemble):
        network = network.members[0]
        calls = {path.removeprefix("members.0."): call for path, call in calls.items() if path.startswith("members.0.")}
    modules = dict(network.named_modules())
    known = _known_lengths(calls, batch.lengths)
    stages: list[Stage] = []
    for name in calls:
        if not name or not _is_shown(name, modules):
            continue
        stage = _stage(name, modules[name], calls, batch, known)
        if stage is None or _has_values(stage, logits):
            continue
        if stages and stages[-1].module.startswith(f"{name}.") and _has_values(stages[-1], stage.values):
            stages.pop()  # an outer module with one layer has the values of this layer
        if isinstance(modules[name], Pooling):
            stages += _pooling_scores(name, calls, modules[name], batch, known)
        stages.append(stage)
    return stages


def _has_values(stage: Stage, values: np.ndarray | None) -> bool:
    if stage.values is None or values is None:
        return False
    return np.array_equal(stage.values, values, equal_nan=True)  # padding may be NaN


def _is_shown(name: str, modules: Mapping[str, nn.Module]) -> bool:
    """Return True for a part of the network, a layer, or an attention, unless it changes nothing in a prediction."""
    parent = modules[name.rpartition(".")[0]]
    if isinstance(modules[name], (nn.Dropout, TokenDropout)):
        return False
    return "." not in name or isinstance(parent, nn.ModuleList) or isinstance(modules[name], SelfAttention)


def _known_lengths(calls: Mapping[str, Call], lengths: np.ndarray) -> dict[int, np.ndarray]:
    """Return the lengths (B,) of the rows wherever T positions are computed, as dict T → lengths.

    Layers that shorten the rows, such as convolutions, pass the new lengths on to the next module.
    """
    known = {int(lengths.max()): lengths}
    for call in calls.values():
        for leaf in leaves((call.args, dict(call.kwargs), call.output)):
            if isinstance(leaf, Tensor) and leaf.dtype == torch.int64 and leaf.shape == lengths.shape:
                known.setdefault(int(leaf.max()), as_array(leaf))
    return known


def _stage(
    name: str, module: nn.Module, calls: Mapping[str, Call], batch: ShownBatch, known: Mapping[int, np.ndarray]
) -> Stage | None:
    """Return the stage of a module, or `None` if its output is not a vector for each token or for each row."""
    if isinstance(module, SelfAttention):
        return _attention(name, module, calls, batch)
    call = calls[name]
    output = _first_tensor(call.output, int(batch.lengths.max()))
    if output is None or len(output) != len(batch.names) or output.ndim not in (2, 3):
        return None
    if output.ndim == 3 and output.shape[1] not in known:
        return None
    default = f"Outputs of {type(module).__name__}", (module.__doc__ or f"The outputs of {name}.").strip()
    title, text = next((texts for kind, texts in TEXTS.items() if isinstance(module, kind)), default)
    text = text.splitlines()[0]
    if (number := name.rpartition(".")[2]).isdigit():
        title += f" {int(number) + 1}"
    if f".{BACKWARD}." in name:
        output = reorder(output, flip_order(torch.from_numpy(known[output.shape[1]]), output.shape[1]))
        title, text = f"{title}, backward", text + BACKWARD_TEXT
    note = ""
    if isinstance(module, Pooling):
        text = f"{text} The kind is {'+'.join(module.kinds)}. Padding does not count."
        note = _halting(call, known)
    values = as_array(output)
    axes = ("rows", "channels") if values.ndim == 2 else ("rows", "tokens", "channels")
    if values.ndim == 2:
        channels = varying_channels(values)
        headings = [f"channel {channel + 1}" for channel in channels]
        maps = HeatMaps([row_map(values[:, channels], batch.names, headings)])
    else:
        maps = token_maps(values, _shortened(batch, known[values.shape[1]]))
    count = values.shape[-1]
    selection = f"The {MAX_CHANNELS} of {count:,} channels that vary most."
    blocks = [Text(selection, soft=True) if count > MAX_CHANNELS else None, maps]
    return Stage(title, text, blocks, values, axes, name, note)


def _first_tensor(output: Any, longest: int) -> Tensor | None:
    """Return the first tensor of an output. Packed sequences are padded to `longest` tokens."""
    first = next(iter(leaves(output)), None)
    if isinstance(first, PackedSequence):
        return pad_packed_sequence(first, batch_first=True, total_length=longest)[0]
    return first if first is not None and first.is_floating_point() else None


def _shortened(batch: ShownBatch, lengths: np.ndarray) -> ShownBatch:
    """Return the batch with other lengths. A vector that is made of several tokens has no text."""
    is_same = lengths.tolist() == batch.lengths.tolist()
    return batch._replace(lengths=lengths, tokens=batch.tokens if is_same else None)


def _halting(call: Call, known: Mapping[int, np.ndarray]) -> str:
    """Return a sentence on the rows of which a network that halts has not read all tokens, or ""."""
    read = as_array(call.args[1])
    lengths = known.get(call.args[0].shape[1], read)
    halted = [
        f"row {row} after {count} of {length} tokens"
        for row, (count, length) in enumerate(zip(read.tolist(), lengths.tolist(), strict=True), start=1)
        if count < length
    ]
    return f"The network halts before the end: {', '.join(halted)}. Tokens behind it do not count." if halted else ""


def _attention(name: str, attention: SelfAttention, calls: Mapping[str, Call], batch: ShownBatch) -> Stage | None:
    """Return the stage of the attention weights (B, T, T), averaged over the heads.

    Entry (b, i, j) is the weight that token i of row b gives to token j. The fused attention of PyTorch does not return
    weights, so they are computed from the recorded queries and keys.
    """
    if int(batch.lengths.max()) > MAX_ATTENTION_TOKENS:
        return None
    _, angles, mask = calls[name].args
    queries, keys, _ = (
        part.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        for part in calls[f"{name}.inputs"].output.chunk(3, dim=-1)
    )
    products = rotate(queries, angles) @ rotate(keys, angles).mT * queries.shape[-1] ** -0.5
    if mask is not None:
        products = products.masked_fill(~mask, float("-inf"))
    weights = as_array(products.softmax(dim=-1).mean(dim=1))
    text = (
        "Every token reads the tokens of its row, padding excluded, and decides by itself how much of each. A line "
        f"shows what one token reads; its weights add up to 1. They are the mean over the {attention.heads} heads."
    )
    return Stage("Attention", text, [pair_maps(weights, batch)], weights, ("rows", "tokens", "tokens"), name)


def _pooling_scores(
    name: str, calls: Mapping[str, Call], pooling: Pooling, batch: ShownBatch, known: Mapping[int, np.ndarray]
) -> Iterator[Stage]:
    """Yield the contribution of each token to the pooled vector of its row, for the kinds attention and max."""
    outputs, lengths = calls[name].args[:2]
    if outputs.shape[1] == 1 or outputs.shape[1] not in known:
        return
    inside = token_mask(lengths, outputs.shape[1])[..., None]
    shown = _shortened(batch, known[outputs.shape[1]])
    for kind in pooling.kinds:
        if kind == "attention":
            line, text = "weight", "The weight of each token in the pooled vector. The weights of a row add up to 1."
            scores = calls[f"{name}.score"].output.masked_fill(~inside, float("-inf")).softmax(dim=1)
        elif kind == "max":
            line, text = "share of channels", "The share of the channels whose largest value is at this token."
            winners = outputs.masked_fill(~inside, float("-inf")).argmax(dim=1, keepdim=True)
            positions = torch.arange(outputs.shape[1])[:, None]
            scores = (winners == positions).float().mean(dim=-1, keepdim=True)
        else:
            continue
        values = as_array(scores)
        yield Stage(
            f"Pooling by {kind}", text, [token_maps(values, shown, [line])], values[..., 0], ("rows", "tokens"), name
        )
