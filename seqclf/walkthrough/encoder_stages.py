"""The stages of an encoder: the outputs of its layers.

For an encoder class without a function in this module, the method `walkthrough_stages` of the encoder returns the
stages. If the method returns `None`, the final outputs are the only stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqclf.models.conv_recurrent import ConvRecurrent, shortened
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.recurrent import Recurrent
from seqclf.models.transformer import SelfAttention, Transformer, rotate
from seqclf.models.tree_levels import sort_nodes
from seqclf.models.tree_lstm import TreeLSTM
from seqclf.walkthrough.recording import BatchView, Outputs, Recording, as_array, token_vectors
from seqclf.walkthrough.stages import Stage, TokenPairs, TokenVectors, TreeLevels

MAX_ATTENTION_TOKENS = 512  # maximum length of a row; attention weights of longer rows have too many pairs of tokens
VECTOR_AXES = ("rows", "tokens", "channels")
RECURRENT_TEXT = (
    "The layer reads a row token by token. The hidden state at a token is made of that token and of the state before "
    "it, so it knows everything up to there."
)
BACKWARD_TEXT = (
    " A second direction reads each row from its own last token to its first, never from the padding. Both states of a "
    "token stand one after the other."
)


@singledispatch
def encoder_stages(
    encoder: SequenceEncoder, recorded: Recording, batch: BatchView, outputs: Outputs
) -> Iterator[Stage]:
    """Yield the stages of an encoder.

    `recorded`: recorded calls of the encoder's modules. `outputs`: final outputs of the encoder.
    """
    own = encoder.walkthrough_stages(recorded, batch, outputs)
    if own is not None:
        yield from own
        return
    text = f"The outputs of the encoder, a {type(encoder).__name__}: a vector for each token."
    yield _outputs_stage("Encoder outputs", text, recorded, batch, outputs)


@encoder_stages.register
def _(encoder: Recurrent, recorded: Recording, batch: BatchView, outputs: Outputs) -> Iterator[Stage]:
    yield from _recurrent_stages(encoder, recorded, batch, outputs)


def _recurrent_stages(
    encoder: Recurrent, recorded: Recording, batch: BatchView, outputs: Outputs, shown: Outputs | None = None
) -> Iterator[Stage]:
    """Yield a stage for each recurrent layer.

    `outputs`: outputs of the last layer. `shown`: outputs that are shown in place of `outputs`, or `None`.
    """
    layers = len(encoder.forward_layers)
    text = RECURRENT_TEXT + (BACKWARD_TEXT if encoder.backward_size else "")
    for layer in range(1, layers):
        # The input of a layer is the output of the previous layer. It has both directions, and its tokens are in row
        # order.
        values = as_array(_padded(recorded.call(f"forward_layers.{layer}").args[0], outputs.values.shape[1]))
        content = TokenVectors(values, outputs.lengths, outputs.channels, outputs.parts, _tokens(batch, outputs))
        title = f"Hidden states of layer {layer} of {layers}"
        yield Stage(title, text, content, values.shape, VECTOR_AXES, recorded.name(f"forward_layers.{layer - 1}"))
        text = "The same as in the layer before, over its hidden states."
    title = "Hidden states" if layers == 1 else f"Hidden states of layer {layers} of {layers}"
    yield _outputs_stage(title, text, recorded, batch, shown or outputs)


@encoder_stages.register
def _(encoder: ConvRecurrent, recorded: Recording, batch: BatchView, outputs: Outputs) -> Iterator[Stage]:
    lengths = batch.lengths
    convolutions: Any = encoder.convolutions
    for index, stride in enumerate(encoder.strides):
        values = as_array(recorded.output(f"convolutions.{index}"))
        before, lengths = lengths, shortened(lengths, stride)
        text = (
            f"Each output of the convolution sees {convolutions[index].convolution.kernel_size[0]} tokens, and "
            f"only every {_ordinal(stride)} output is kept. Time is shorter by that: the longest row has "
            f"{lengths.max()} outputs for {before.max()} tokens, so the recurrence takes as many fewer steps."
        )
        content = token_vectors(values, lengths, None)
        name = recorded.name(f"convolutions.{index}")
        yield Stage(
            f"Convolution {index + 1} of {len(encoder.strides)}", text, content, values.shape, VECTOR_AXES, name
        )
    inside = recorded.inside("recurrent")
    values, shown_lengths, _ = inside.output("")
    own = outputs._replace(values=as_array(values), lengths=as_array(shown_lengths))
    yield from _recurrent_stages(encoder.recurrent, inside, batch, own, outputs)


@encoder_stages.register
def _(encoder: Transformer, recorded: Recording, batch: BatchView, outputs: Outputs) -> Iterator[Stage]:
    blocks: Any = encoder.blocks
    is_long = int(batch.lengths.max()) > MAX_ATTENTION_TOKENS
    for index, block in enumerate([] if is_long else blocks):
        weights = attention_weights(block.attention, recorded.inside(f"blocks.{index}.attention"))
        text = (
            "Every token reads the tokens of its row, padding excluded, and decides by itself how much of each. A line "
            "shows what one token reads; its shares add up to 1. They are the mean over the "
            f"{block.attention.heads} heads."
        )
        content = TokenPairs(weights, batch.lengths, batch.tokens)
        axes = ("rows", "tokens", "tokens")
        name = recorded.name(f"blocks.{index}.attention")
        yield Stage(f"Attention of block {index + 1} of {len(blocks)}", text, content, weights.shape, axes, name)
    text = (
        "The outputs of the last block: a vector for each token that has read the others. The order enters by the "
        "distances between tokens, as nothing is read one after the other."
    )
    if is_long:
        text += f" What each token reads of the others is shown for rows of at most {MAX_ATTENTION_TOKENS:,} tokens."
    yield _outputs_stage("Encoder outputs", text, recorded, batch, outputs)


@encoder_stages.register
def _(encoder: TreeLSTM, recorded: Recording, batch: BatchView, outputs: Outputs) -> Iterator[Stage]:
    call = recorded.call("")
    tokens, lengths = call.args[:2]
    parents = call.kwargs["parents"]
    depths = as_array(sort_nodes(parents, lengths).depths).reshape(parents.shape)
    assert batch.tokens is not None, "the tokens of nodes are categories"
    levels = TreeLevels(as_array(parents), depths, batch.lengths, batch.tokens)
    text = (
        "A node needs the states of its children and nothing else. So all nodes of one depth are computed together, "
        "over all trees of the batch: the deepest first, the roots last. There are as many steps as the deepest tree "
        "has levels, not as many as there are nodes."
    )
    yield Stage("Levels of the trees", text, levels, module=recorded.name(""))
    with torch.inference_mode():
        _, nodes = encoder.node_states(tokens, lengths, parents)
    values = torch.full((parents.numel(), encoder.size), float("nan"))
    values[nodes.positions] = nodes.states.float()
    states = as_array(values.view(*parents.shape, -1))
    text = (
        "The hidden state of each node: made of its own token and of the states of its children. The root, the last "
        "node of a row, knows the whole tree."
    )
    content = token_vectors(states, batch.lengths, batch.tokens)
    yield Stage(
        "Hidden states of the nodes", text, content, states.shape, ("rows", "nodes", "channels"), recorded.name("")
    )


def attention_weights(attention: SelfAttention, recorded: Recording) -> np.ndarray:
    """Return (B, T, T) attention weights, averaged over the heads.

    Entry (b, i, j) is the weight that token i of row b gives to token j. The fused attention of PyTorch does not return
    weights, so they are computed from the recorded queries and keys.
    """
    _, angles, mask = recorded.call("").args
    queries, keys, _ = (
        part.unflatten(-1, (attention.heads, -1)).transpose(1, 2) for part in recorded.output("inputs").chunk(3, dim=-1)
    )
    products = rotate(queries, angles) @ rotate(keys, angles).mT * queries.shape[-1] ** -0.5
    if mask is not None:
        products = products.masked_fill(~mask, float("-inf"))
    return as_array(products.softmax(dim=-1).mean(dim=1))


def _outputs_stage(title: str, text: str, recorded: Recording, batch: BatchView, outputs: Outputs) -> Stage:
    content = TokenVectors(outputs.values, outputs.lengths, outputs.channels, outputs.parts, _tokens(batch, outputs))
    return Stage(title, text, content, outputs.values.shape, VECTOR_AXES, recorded.name(""))


def _tokens(batch: BatchView, outputs: Outputs) -> list[list[str]] | None:
    """Return the token texts of each row, or `None` if the encoder has fewer outputs than tokens."""
    same = outputs.lengths.tolist() == batch.lengths.tolist()
    return [list(row) for row in batch.tokens] if same and batch.tokens is not None else None


def _padded(tokens: Tensor | PackedSequence, longest: int) -> Tensor:
    if isinstance(tokens, PackedSequence):
        return pad_packed_sequence(tokens, batch_first=True, total_length=longest)[0]
    return tokens


def _ordinal(count: int) -> str:
    return {1: "one", 2: "second", 3: "third"}.get(count, f"{count}th")
