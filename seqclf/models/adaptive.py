"""Classifier that decides for each sequence how many tokens it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seqclf.config.argument_types import checks_values
from seqclf.config.options import NonNegative
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.chunk_step import ChunkStep
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.pooling import token_mask
from seqclf.models.running_state import State
from seqclf.models.training_loss import Loss, TrainingLoss, row_costs

GAIN_WEIGHT = 0.02  # of a batch, in the running mean of what reading removes from the loss
START_BIAS = -3.0  # a stop probability of 5 % while nothing is known, so that training begins with long readings
MAX_LOGITS = 4_000_000  # of all prefixes together that are kept at a time


class Reading(NamedTuple):
    """Outputs and scores of B sequences of up to T tokens, as a network read them.

    `outputs`: (B, T, size) of the encoder. `prefixes`: (B, T, pooled size), the tokens up to each one pooled. `scores`:
    (B, T) halting scores, which rise along a row.
    """

    outputs: Tensor
    prefixes: Tensor
    scores: Tensor


class HaltingHead(nn.Module):
    """Returns the logit (B, T) of the probability to stop at each token.

    It reads the outputs (B, T, `size`) of the encoder, and the certainty (B, T) of the classifier after each token (see
    `certainty_of`), which counts from the start of training: few rows teach little about when to stop.
    """

    def __init__(self, size: int):
        super().__init__()
        self.outputs = nn.Linear(size, 1)
        nn.init.constant_(self.outputs.bias, START_BIAS)
        self.certainty = nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, certainty: Tensor) -> Tensor:
        return self.outputs(outputs)[..., 0] + self.certainty * certainty


OWN_NAMES = {"threshold", "read", "halted"}  # an input and two outputs of the exported step


class AdaptiveClassifier(SequenceClassifier):
    """A `SequenceClassifier` that reads a sequence from its start and may halt before its end.

    A second head, `HaltingHead`, gives each token a probability to stop there. The halting score of a token is -log of
    the probability that the sequence has not halted up to it, which only rises. A sequence halts at the first token
    whose score reaches `threshold`, and is classified by the tokens up to there. `forward` returns these logits. While
    the network is trained, the threshold is infinite: validation judges reading to the end. It is set once, after
    training, from scores of validation (see `TokensCurve`).

    Trained end to end by the exact expectation over the halting token (Russwurm et al. 2023, ELECTS; Banino et al.
    2021, PonderNet): the mean loss of the logits at that token, plus a price of the share of tokens read, plus the loss
    of the logits after the last token, so that reading to the end stays good.

    `earliness`: price of reading a whole sequence, as a share of the loss that reading it removes. That share is
    comparable between datasets, whereas a price in units of the loss would exceed all there is to gain where one class
    is rare. `arguments`: those of `SequenceClassifier`. Its encoder must read in one direction. Raises InputError if it
    does not.

    >>> model = AdaptiveClassifier(
    ...     [{"name": "word", "kind": "category", "size": 50}],
    ...     num_classes=3,
    ...     earliness=0.1,
    ...     encoder={"_target_": "seqclf.models.recurrent.Recurrent"},
    ...     bidirectional=False,
    ... )
    >>> lengths = np.array([5, 2])
    >>> batch = {"word": torch.randint(1, 50, (2, 5))}, torch.from_numpy(lengths), lengths
    >>> logits, read = model.at_thresholds(*batch, torch.tensor([0.0, math.inf]))
    >>> logits.shape, read.tolist()  # at 0 a sequence halts at its first token
    (torch.Size([2, 2, 3]), [[1, 5], [1, 2]])
    """

    halts = True
    gain: Tensor

    @checks_values("model")
    def __init__(
        self, fields: Sequence[FieldSpec], num_classes: int, *, earliness: NonNegative = 0.1, **arguments: Any
    ):
        if taken := sorted({field["name"] for field in fields} & OWN_NAMES):
            renamed = f"data.fields={{{taken[0]}_value: {{kind: KIND, column: {taken[0]}}}, …}}"
            raise InputError(f"data.fields.{taken[0]}", "is a name of model=adaptive", f"rename it: {renamed}")
        super().__init__(fields, num_classes, **arguments)
        self.earliness = earliness
        self.threshold = math.inf
        # Running mean of what reading removes from the loss. Part of the checkpoint, as the next step depends on it.
        self.register_buffer("gain", torch.zeros(()))
        self.halting = HaltingHead(self.encoder.size)

    @classmethod
    def check_encoder(cls, encoder: SequenceEncoder) -> None:
        """Raise InputError for an encoder that reads a sequence from its end too, or only as a whole."""
        if encoder.step_form() is None:
            problem = "an adaptive model reads each sequence once, from its start"
            if encoder.backward_size:
                raise InputError("model.bidirectional=true", problem, "set model.bidirectional=false")
            remedy = "set an encoder that can read chunk by chunk, such as seqclf.models.recurrent.Recurrent"
            raise InputError("model", problem, remedy)

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Tensor:
        """Return the logits (B, C) at the tokens where the sequences halt. See `SequenceClassifier.forward`."""
        outputs, _, scores = self.read(fields, lengths, host_lengths)
        return self.head(self.pooling(outputs, tokens_read(scores, lengths, self.threshold)))

    def read(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Reading:
        """Read whole sequences. See `Reading`."""
        embedded = self.embedding_dropout(self.embedding(fields))
        outputs, _, _ = self.encoder(embedded, lengths, host_lengths)
        prefixes = self.pooling.prefixes(outputs, lengths)
        return Reading(outputs, prefixes, self.halting_scores(outputs, prefixes, lengths))

    def halting_scores(self, outputs: Tensor, prefixes: Tensor, lengths: Tensor) -> Tensor:
        """Return the halting scores (B, T). `outputs`, `prefixes`: see `Reading`."""
        # Without gradients, so that no loss is lowered by being surer or less sure than the tokens allow.
        with torch.no_grad():
            parts = [prefixes]
            if not torch.compiler.is_exporting():
                parts = list(prefixes.split(max(1, MAX_LOGITS // (self.output.out_features * len(prefixes))), dim=1))
            certainty = torch.cat([certainty_of(self.output(self.norm(part)).float()) for part in parts], dim=1)
        return halting_steps(self.halting(outputs, certainty), lengths).cumsum(dim=1)

    def at_thresholds(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray, thresholds: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, K, C) and the tokens read (B, K) at each of K `thresholds`, from one run of the encoder."""
        _, prefixes, scores = self.read(fields, lengths, host_lengths)
        read = torch.stack([tokens_read(scores, lengths, float(threshold)) for threshold in thresholds], dim=1)
        chosen = prefixes.gather(1, (read - 1)[..., None].expand(-1, -1, prefixes.shape[-1]))
        return self.head(chosen), read

    def halting_margin(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        """Return how far (B,) the halting scores of each sequence stay away from the threshold.

        Where it is a rounding error, another runtime may halt a token earlier or later.
        """
        scores = self.read(fields, lengths, host_lengths).scores
        if self.threshold == 0:  # which the first token reaches, whatever its score
            return torch.full_like(scores[:, 0], math.inf)
        distance = (scores - self.threshold).abs()
        return distance.masked_fill(~token_mask(lengths, scores.shape[1]), math.inf).amin(dim=1)

    def training_loss(
        self,
        fields: Mapping[str, Tensor],
        lengths: Tensor,
        host_lengths: np.ndarray | None,
        labels: Tensor,
        loss: Loss,
    ) -> TrainingLoss:
        """See `SequenceNetwork.training_loss`. The scores of training are those of the logits after the last token."""
        _, prefixes, scores = self.read(fields, lengths, host_lengths)
        inside = token_mask(lengths, scores.shape[1])
        costs = torch.zeros_like(scores)
        costs[inside] = self._costs(prefixes[inside], labels.repeat_interleave(lengths), loss)
        rows = torch.arange(len(lengths), device=lengths.device)
        share = torch.arange(1, scores.shape[1] + 1, device=lengths.device) / lengths[:, None]
        last = costs[rows, lengths - 1].mean()
        with torch.no_grad():
            self.gain.lerp_((costs[:, 0].mean() - last).to(self.gain.dtype), GAIN_WEIGHT)
            logits = self.head(prefixes[rows, lengths - 1]).float()
            shown = loss(logits, labels)
        price = self.earliness * self.gain.clamp(min=0.0)
        expected = (halting_distribution(scores, lengths) * (costs + price * share)).sum(dim=1).mean()
        return TrainingLoss(logits, shown, expected + last)

    def _costs(self, pooled: Tensor, labels: Tensor, loss: Loss) -> Tensor:
        """Return the loss (S,) of each of S prefixes. Where logits are many, the backward pass computes them anew."""

        def costs(part: Tensor, part_labels: Tensor) -> Tensor:
            return row_costs(loss, self.head(part).float(), part_labels)

        size = max(1, MAX_LOGITS // self.output.out_features)
        if len(pooled) <= size:
            return costs(pooled, labels)
        parts = zip(pooled.split(size), labels.split(size), strict=True)
        return torch.cat([checkpoint(costs, *part, use_reentrant=False) for part in parts])

    def step_form(self) -> AdaptiveStep:
        return AdaptiveStep(self, self.encoder.step_form())


def certainty_of(logits: Tensor) -> Tensor:
    """Return -log of the probability that another class than the most probable one is right, from logits (…, C).

    >>> certainty_of(torch.tensor([0.9, 0.05, 0.05]).log())  # -log 0.1
    tensor(2.3026)
    """
    best = logits.max(dim=-1, keepdim=True)
    # Not by 1 - p, which is 0 long before the certainty is infinite.
    others = logits.scatter(-1, best.indices, -math.inf).logsumexp(dim=-1)
    return functional.softplus(best.values[..., 0] - others)


def halting_steps(stop_logits: Tensor, lengths: Tensor) -> Tensor:
    """Return -log(1 - stop probability) of each token (B, T), 0 in the padding."""
    steps = functional.softplus(stop_logits.float())
    return torch.where(token_mask(lengths, stop_logits.shape[1]), steps, 0.0)


def tokens_read(scores: Tensor, lengths: Tensor, threshold: float | Tensor) -> Tensor:
    """Return how many tokens (B,) of each sequence are read until its halting score reaches the threshold.

    >>> scores = torch.tensor([[0.1, 0.9, 1.0], [0.2, 0.3, 0.3]])
    >>> tokens_read(scores, torch.tensor([3, 2]), threshold=0.7)
    tensor([2, 2])
    """
    before = (scores < threshold) & token_mask(lengths, scores.shape[1])
    return torch.minimum(before.sum(dim=1) + 1, lengths)


def halting_distribution(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return the probability (B, T) of each token to be the one where a sequence halts, exactly and in parallel.

    The mean of two readers: one that starts at the first token, as in prediction, and one that joins at a random token.
    The first alone would teach nothing about tokens that it hardly ever reaches, so that a network which halts too
    early could never find out that reading on pays. What is left at the last token falls to it.

    >>> scores = -torch.tensor([[0.75, 0.25, 0.125]]).log()  # stop probabilities 1/4, 2/3 and 1/2
    >>> halting_distribution(scores, torch.tensor([3]))  # the mean of [9, 18, 9] / 36 and [3, 14, 19] / 36
    tensor([[0.1667, 0.4444, 0.3889]])
    """
    before = functional.pad(scores, (1, -1))
    reached_from_start = (-before).exp()
    # Of a token: the sum over all starts of the probability to read on from the start up to it.
    reached_from_any = (before.logcumsumexp(dim=1) - before).exp()
    reached = (reached_from_start + reached_from_any / lengths[:, None]) / 2
    last = torch.arange(scores.shape[1], device=scores.device) == lengths[:, None] - 1
    stops = torch.where(last, 1.0, -torch.expm1(before - scores))
    return torch.where(token_mask(lengths, scores.shape[1]), reached * stops, 0.0)


class AdaptiveStep(ChunkStep):
    """`AdaptiveClassifier` over a chunk of tokens.

    It takes the `threshold` too. Logits are those after the last token that was read: the one where a row halts, or
    the last of the chunk. Returns the tokens `read` (B,) in the chunk, and `halted` (B,), too.
    """

    more_inputs: Mapping[str, float] = MappingProxyType({"threshold": 1.0})
    more_outputs = ("read", "halted")

    def __init__(self, classifier: AdaptiveClassifier, encoder: Any):
        super().__init__(classifier, encoder)
        self.halting = classifier.halting
        self.states = [*self.states, State("halting_score", (), 0.0)]

    def forward(  # type: ignore[override]
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor], threshold: Tensor
    ) -> dict[str, Any]:
        outputs, encoder_states = self.read(fields, lengths, states)
        before, pooling_before = states[-1], states[len(encoder_states) : -1]
        logits = self.classify(self.pooling.prefixes(outputs, lengths, pooling_before))
        stops = self.halting(outputs, certainty_of(logits))
        scores = before[:, None] + halting_steps(stops, lengths).cumsum(dim=1)
        read = tokens_read(scores, lengths, threshold)
        after = scores.gather(1, (read - 1)[:, None])[:, 0]
        pooled, pooling_states = self.pooling.run(outputs, read, pooling_before)
        return {
            "logits": self.classify(pooled),
            "read": read,
            "halted": after >= threshold,
            "states": [*encoder_states, *pooling_states, after],
        }
