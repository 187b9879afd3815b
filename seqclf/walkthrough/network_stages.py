"""The stages of a network: embedded tokens, the stages of its encoder, and the pooled vector of each row.

`network_stages` and `encoder_stages.encoder_stages` call a function that is registered for the class of a module. To
add a network class to this package, register a function with `network_stages.register`. A network or an encoder from
another package is not registered. It defines a method `walkthrough_stages`. The method `walkthrough_stages` has the
same arguments as a registered function, except the module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.conv_recurrent import ConvRecurrent
from seqclf.models.ensemble import Ensemble
from seqclf.models.network import SequenceNetwork
from seqclf.models.pooling import Pooling, token_mask
from seqclf.walkthrough.encoder_stages import encoder_stages
from seqclf.walkthrough.recording import BatchView, Outputs, Recording, as_array, token_vectors
from seqclf.walkthrough.stages import (
    Part,
    RowVectors,
    Stage,
    TokenScores,
    TokenVectors,
    varying_channels,
)

POOLING_TEXTS = {
    "last": "the output of the last token, not of the padding behind it",
    "mean": "the mean over the tokens of the row; padding does not count",
    "max": "the largest value of each channel over the tokens of the row; padding does not count",
    "attention": "a weighted mean over the tokens, with weights that the model has learned to give",
}


@singledispatch
def network_stages(network: SequenceNetwork, recorded: Recording, batch: BatchView) -> Iterator[Stage]:
    """Yield the stages of a network between the padded batch and the logits, in order of computation."""
    yield from network.walkthrough_stages(recorded, batch)


@network_stages.register
def _(network: Ensemble, recorded: Recording, batch: BatchView) -> Iterator[Stage]:
    yield from network_stages(network.members[0], recorded.inside("members.0"), batch)


@network_stages.register
def _(network: SequenceClassifier, recorded: Recording, batch: BatchView) -> Iterator[Stage]:
    yield _embedded(network, recorded, batch)
    values, lengths, _ = recorded.output("encoder")
    outputs = outputs_of(network.encoder, as_array(values), as_array(lengths))
    for stage in encoder_stages(network.encoder, recorded.inside("encoder"), batch, outputs):
        yield stage
        if isinstance(stage.content, TokenVectors) and stage.content.values.shape[-1] == outputs.values.shape[-1]:
            outputs = outputs._replace(channels=stage.content.channels)  # show the same channels in the pooled vector
    tokens = batch.tokens if outputs.lengths.tolist() == batch.lengths.tolist() else None
    pooled_lengths = as_array(recorded.call("pooling").args[1])
    if isinstance(network, AdaptiveClassifier):
        yield _halting(network, recorded, outputs, pooled_lengths, tokens)
    yield from _pooling_stages(network.pooling, recorded, outputs._replace(lengths=pooled_lengths), batch, tokens)


def _halting(
    network: AdaptiveClassifier,
    recorded: Recording,
    outputs: Outputs,
    read: np.ndarray,
    tokens: Sequence[Sequence[str]] | None,
) -> Stage:
    """Return a stage with the cumulative halting probability at each token.

    The cumulative probability at a token is the probability that the network halts at this token or before. `read`:
    (B,) number of tokens that the network has read in each row.
    """
    hidden, lengths = torch.from_numpy(outputs.values), torch.from_numpy(outputs.lengths)
    with torch.no_grad():
        scores = network.halting_scores(hidden, network.pooling.prefixes(hidden, lengths), lengths)
    values = -np.expm1(-as_array(scores))
    at_the_last = as_array(scores)[np.arange(len(read)), read - 1]
    marks = ["halts" if score >= network.threshold else "end" for score in at_the_last.tolist()]
    text = (
        "Each hidden state, and how sure the classifier is by then, give a probability to stop there, and with it the "
        "probability that the row has halted, which only rises."
    )
    if math.isinf(network.threshold):
        note = "No limit is set, so each row is read to its end. A run sets one on validation after its training."
    else:
        note = (
            "A row is read up to the first token at which the probability to have halted is at least "
            f"{-math.expm1(-network.threshold):.3g}, the limit that validation has set, or else to its end. Tokens "
            "behind it do not count below. A prediction does not even compute them."
        )
    content = TokenScores("probability to have halted", values, outputs.lengths, tokens, read - 1, marks)
    return Stage("Halting", text, content, values.shape, ("rows", "tokens"), recorded.name("halting"), note)


def outputs_of(encoder: Any, values: np.ndarray, lengths: np.ndarray) -> Outputs:
    """Return the outputs of an encoder.

    The channels are divided into named parts, such as the forward and the backward direction.
    """
    size = values.shape[-1]
    backward = encoder.backward_size
    # Channels of convolutions precede channels of the recurrence.
    first = size - encoder.recurrent.size if isinstance(encoder, ConvRecurrent) else 0
    middle = size - backward
    parts = [Part("convolution", 0, first)] if first else []
    parts += [Part("forward", first, middle), Part("backward", middle, size)] if backward else [Part("", first, size)]
    return Outputs(values, lengths, parts, varying_channels(values, lengths, parts))


def _embedded(network: SequenceClassifier, recorded: Recording, batch: BatchView) -> Stage:
    values = as_array(recorded.output("embedding"))
    # The channels of one field are consecutive. Fields have the order of the embedding layers.
    sizes = [recorded.output(f"embedding.layers.{index}").shape[-1] for index in range(len(network.embedding.names))]
    stops = np.cumsum(sizes).tolist()
    names = network.embedding.names if len(sizes) > 1 else [""]
    parts = [Part(name, stop - size, stop) for name, size, stop in zip(names, sizes, stops, strict=True)]
    text = (
        f"Every token becomes a vector of {values.shape[-1]} numbers, its channels, which training has adjusted: an id "
        "looks up its row in a table, and numbers go through a linear layer. Equal tokens have equal vectors, wherever "
        "they stand. "
        "The batch has one axis more."
    )
    if len(sizes) > 1:
        text += f" The vectors of the {len(sizes)} fields of a token stand one after the other."
    content = token_vectors(values, batch.lengths, batch.tokens, parts)
    return Stage(
        "Embedded tokens", text, content, values.shape, ("rows", "tokens", "channels"), recorded.name("embedding")
    )


def _pooling_stages(
    pooling: Pooling,
    recorded: Recording,
    outputs: Outputs,
    batch: BatchView,
    tokens: Sequence[Sequence[str]] | None,
) -> Iterator[Stage]:
    of_one_token = outputs.values.shape[1] == 1 and int(batch.lengths.max()) > 1
    for kind in pooling.kinds:
        scores = None if of_one_token else _token_scores(kind, recorded, outputs, tokens)
        if scores is not None:
            yield scores
    values = as_array(recorded.output("pooling"))
    size = outputs.values.shape[-1]
    several = len(pooling.kinds) > 1
    channels = [index * size + outputs.channels for index in range(len(pooling.kinds))]
    parts = [
        Part(
            f"{kind} {part.name}".strip() if several else part.name, index * size + part.start, index * size + part.stop
        )
        for index, kind in enumerate(pooling.kinds)
        for part in outputs.parts
    ]
    how = "; ".join(f"{kind}: {POOLING_TEXTS[kind]}" for kind in pooling.kinds)
    if "last" in pooling.kinds and pooling.forward_size < size:
        how += ". The backward direction ends at the first token, so its part comes from there"
    text = f"One vector for each row, whatever its length ({how}). The axis of the tokens is gone."
    if of_one_token:
        text = "One vector for each row: the state of its root. The axis of the tokens is gone."
    content = RowVectors(values, np.concatenate(channels), parts)
    yield Stage("Pooled rows", text, content, values.shape, ("rows", "channels"), recorded.name("pooling"))


def _token_scores(
    kind: str, recorded: Recording, outputs: Outputs, tokens: Sequence[Sequence[str]] | None
) -> Stage | None:
    """Return a stage with the contribution of each token to the pooled vector of its row.

    Return `None` for last and mean pooling, because the contributions then do not depend on the token values.
    """
    inside = token_mask(torch.from_numpy(outputs.lengths), outputs.values.shape[1]).numpy()
    if kind == "attention":
        scores = as_array(recorded.output("pooling.score"))[..., 0]
        weights = np.exp(
            np.where(inside, scores, -np.inf) - np.where(inside, scores, -np.inf).max(axis=1, keepdims=True)
        )
        values = weights / weights.sum(axis=1, keepdims=True)
        name, text = "weight", "The weight of each token in the pooled vector. The weights of a row add up to 1."
    elif kind == "max":
        winners = np.where(inside[..., None], outputs.values, -np.inf).argmax(axis=1)
        values = (winners[:, None] == np.arange(outputs.values.shape[1])[:, None]).mean(axis=-1)
        name = "share of channels"
        text = (
            "The share of the channels whose largest value is at this token, and which the pooled vector takes from it."
        )
    else:
        return None
    content = TokenScores(name, values, outputs.lengths, tokens)
    return Stage(f"Pooling by {kind}", text, content, values.shape, ("rows", "tokens"), recorded.name("pooling"))
