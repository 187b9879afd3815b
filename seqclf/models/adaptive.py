"""Adaptive classifier, which decides for each sequence how many tokens are read before the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seqclf.batching.batches import SplitRows
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.classifier import EncoderClassifier, SequenceEncoder
from seqclf.models.network import Fields, HostLengths, Loss, TrainingLoss, WeighedLoss, row_costs
from seqclf.models.pooling import token_mask
from seqclf.models.streaming import ChunkStep, State
from seqclf.settings.base import NonNegative

GAIN_WEIGHT = 0.02  # weight of each new batch in the running mean `AdaptiveClassifier.gain`
START_BIAS = -3.0  # initial bias of the stop logit; a stop probability of 5 % lets early training read many tokens
MAX_LOGITS = 4_000_000  # maximum number of logits in memory; each prefix of a sequence has its own logits


class Prefixes(NamedTuple):
    """Encoder outputs (B, T, size), pooled prefixes (B, T, P), each of tokens 0 to t, and halting scores (B, T)."""

    outputs: Tensor
    prefixes: Tensor
    scores: Tensor


class HaltingHead(nn.Module):
    """Layer that computes the stop logits (B, T, 1) of an `AdaptiveClassifier`, whose sigmoid is a stop probability.

    The inputs are the encoder outputs (B, T, `size`) and the certainty (B, T) after each token (see `certainty_of`),
    whose weight starts at 1, because a small dataset is not enough to learn it from 0.
    """

    def __init__(self, size: int):
        super().__init__()
        self.outputs = nn.Linear(size, 1)
        nn.init.constant_(self.outputs.bias, START_BIAS)
        self.certainty = nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, certainty: Tensor) -> Tensor:
        return self.outputs(outputs) + self.certainty * certainty[..., None]


READ_ALL = -1.0  # threshold that no score reaches; an infinite one would be NaN in a running mean of weights
# Thresholds that `fit_to_validation` tries. At 0, only one token is read.
THRESHOLDS = torch.from_numpy(np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 120), [READ_ALL]]))
TOLERATED_LOSS = 0.005  # the chosen threshold may lose this much macro recall
TOLERATED_SHARE = 0.05  # it may lose this fraction of the decrease in log loss that reading all tokens brings


class AdaptiveClassifier(EncoderClassifier):
    """A `EncoderClassifier` that reads a sequence from its start and may halt before its end.

    A second head, `HaltingHead`, computes a stop probability for each token. The halting score of a token is -log(p),
    where p is the probability that the sequence has not stopped by then. The halting token is the first one whose score
    reaches `threshold`, and `forward` reads up to it. In training all tokens are read; then validation rows choose the
    threshold (see `fit_to_validation`). The extra output `tokens_read` counts the tokens up to the halting token.
    Training minimizes the exact expectation of the loss over the position of the halting token (Russwurm et al. 2023,
    ELECTS; Banino et al. 2021, PonderNet), plus a price for the tokens that are read, plus the loss after the last
    token, so that the classifier stays accurate for whole sequences. `earliness`: price of reading a whole sequence, as
    a fraction of `gain`, the loss after the first token minus the loss after the last one. A fixed price could exceed
    the gain if one class is rare. `arguments`: arguments of `EncoderClassifier`. Raises InputError if the encoder is
    not unidirectional.

    >>> model = AdaptiveClassifier(
    ...     [{"name": "word", "kind": "category", "size": 50}],
    ...     num_classes=3,
    ...     earliness=0.1,
    ...     encoder={"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    ...     bidirectional=False,
    ... )
    >>> lengths = np.array([5, 2])
    >>> batch = {"word": torch.randint(1, 50, (2, 5))}, torch.from_numpy(lengths), lengths
    >>> model.eval().outputs(*batch)["tokens_read"].tolist()
    [5, 2]
    >>> logits, read = model.at_thresholds(*batch, torch.tensor([0.0, READ_ALL]))
    >>> logits.shape, read.tolist()  # at 0 a sequence halts at its first token
    (torch.Size([2, 2, 3]), [[1, 5], [1, 2]])
    """

    extra_outputs = ("tokens_read",)
    set_by_validation = "halting threshold"
    gain: Tensor
    threshold: Tensor

    def __init__(
        self, fields: Sequence[FieldSpec], num_classes: int, *, earliness: NonNegative = 0.1, **arguments: Any
    ):
        super().__init__(fields, num_classes, **arguments)
        self.earliness = earliness
        # Running mean of (loss after the first token) - (loss after the last token), a buffer for resumed training.
        self.register_buffer("gain", torch.zeros(()))
        self.register_buffer("threshold", torch.tensor(READ_ALL))
        self.halting = HaltingHead(self.encoder.size)

    @classmethod
    def check_encoder(cls, encoder: SequenceEncoder) -> None:
        """Raise InputError if the encoder is bidirectional or cannot read a sequence in chunks."""
        if encoder.streaming() is None:
            problem = "an adaptive model reads each sequence once, from its start"
            if encoder.backward_size:
                raise InputError("model.bidirectional=true", problem, "set model.bidirectional=false")
            remedy = "set an encoder that can read chunk by chunk, such as seqclf.models.rnn.recurrent.Recurrent"
            raise InputError("model", problem, remedy)

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        return self.outputs(fields, lengths, host_lengths)["logits"]

    def outputs(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> dict[str, Tensor]:
        outputs, _, scores = self.read(fields, lengths, host_lengths)
        read = lengths if self.training else tokens_read(scores, lengths, self.threshold)
        return {"logits": self.head(self.pooling(outputs, read), fields), "tokens_read": read}

    def read(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Prefixes:
        outputs, _ = self.encode(fields, lengths, host_lengths)
        prefixes = self.pooling.prefixes(outputs, lengths)
        return Prefixes(outputs, prefixes, self.halting_scores(outputs, prefixes, lengths, fields))

    def halting_scores(self, outputs: Tensor, prefixes: Tensor, lengths: Tensor, fields: Fields) -> Tensor:
        # Without gradients: training could lower the loss by making the classifier over- or underconfident.
        with torch.no_grad():
            parts = [prefixes]
            if not torch.compiler.is_exporting():
                parts = list(prefixes.split(max(1, MAX_LOGITS // (self.output.out_features * len(prefixes))), dim=1))
            certainty = torch.cat([certainty_of(self.output(self.join(part, fields)).float()) for part in parts], dim=1)
        return halting_steps(self.halting(outputs, certainty)[..., 0], lengths).cumsum(dim=1)

    def at_thresholds(
        self, fields: Fields, lengths: Tensor, host_lengths: np.ndarray, thresholds: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, K, C) and numbers of tokens read (B, K) for K `thresholds`, by one run of the encoder."""
        _, prefixes, scores = self.read(fields, lengths, host_lengths)
        read = torch.stack([tokens_read(scores, lengths, float(threshold)) for threshold in thresholds], dim=1)
        chosen = prefixes.gather(1, (read - 1)[..., None].expand(-1, -1, prefixes.shape[-1]))
        return self.head(chosen, fields), read

    @torch.inference_mode()
    def fit_to_validation(self, rows: SplitRows) -> str:
        """Set the threshold that reads the fewest tokens and is nearly as good as reading all.

        Its macro recall is at most `TOLERATED_LOSS` lower, and it loses at most a fraction `TOLERATED_SHARE` of what
        reading all tokens gains in log loss over the first token: recall alone ignores a rare class that is never the
        most probable one.
        """
        count, classes = len(THRESHOLDS), self.output.out_features
        right, loss, read = (torch.zeros(size, dtype=torch.float64) for size in ((classes, count), count, count))
        most_rows = max(1, MAX_LOGITS // (count * classes))
        for batch in rows.batches():
            for some in np.split(np.arange(len(batch.rows)), range(most_rows, len(batch.rows), most_rows)):
                fields, lengths = {name: values[some] for name, values in batch.fields.items()}, batch.lengths[some]
                logits, tokens = self.at_thresholds(fields, lengths, lengths.cpu().numpy(), THRESHOLDS)
                logits, labels = logits.cpu().double(), torch.from_numpy(rows.labels[batch.rows[some]])
                right.index_add_(0, labels, (logits.argmax(dim=2) == labels[:, None]).double())
                of_label = logits.log_softmax(dim=2)[torch.arange(len(labels)), :, labels]
                loss -= of_label.sum(dim=0)
                read += tokens.cpu().sum(dim=0)
        rows_of_class = torch.from_numpy(np.bincount(rows.labels, minlength=classes))
        recall = (right / rows_of_class[:, None])[rows_of_class > 0].mean(dim=0)
        loss, share = loss / len(rows), read / int(rows.lengths.sum())
        # 1e-9 allows for rounding errors if recalls differ by exactly the tolerance.
        good = recall >= recall[-1] - TOLERATED_LOSS - 1e-9
        good &= loss <= loss[-1] + TOLERATED_SHARE * (loss[0] - loss[-1]).clamp(min=0.0)
        good[-1] = True
        best = int((share == share[good].min()).nonzero()[-1])  # the last of those that read the same tokens
        self.threshold.fill_(THRESHOLDS[best])
        return f"reads {share[best]:.0%} of the tokens, macro recall {recall[best]:.3f}, {recall[-1]:.3f} reading all"

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        _, prefixes, scores = self.read(fields, lengths, host_lengths)
        inside = token_mask(lengths, scores.shape[1])
        costs = torch.zeros_like(scores)
        of_tokens = {name: fields[name].repeat_interleave(lengths, dim=0) for name in self.static.names}
        joined = self.join(prefixes[inside], of_tokens)
        plain = loss.loss if isinstance(loss, WeighedLoss) else loss
        costs[inside] = self._costs(joined, labels.repeat_interleave(lengths), plain)
        costs = costs * loss.weights[:, None] if isinstance(loss, WeighedLoss) else costs
        rows = torch.arange(len(lengths), device=lengths.device)
        share = torch.arange(1, scores.shape[1] + 1, device=lengths.device) / lengths[:, None]
        last = costs[rows, lengths - 1].mean()
        with torch.no_grad():
            self.gain.lerp_((costs[:, 0].mean() - last).to(self.gain.dtype), GAIN_WEIGHT)
            logits = self.head(prefixes[rows, lengths - 1], fields).float()
            shown = loss(logits, labels)
        price = self.earliness * self.gain.clamp(min=0.0)
        expected = (halting_distribution(scores, lengths) * (costs + price * share)).sum(dim=1).mean()
        return TrainingLoss(logits, shown, expected + last)

    def _costs(self, joined: Tensor, labels: Tensor, loss: Loss) -> Tensor:
        """Return the loss (S,) of each prefix. The backward pass computes them again if there are many."""

        def costs(part: Tensor, part_labels: Tensor) -> Tensor:
            return row_costs(loss, self.output(self.dropout(part)).float(), part_labels)

        size = max(1, MAX_LOGITS // self.output.out_features)
        if len(joined) <= size:
            return costs(joined, labels)
        parts = zip(joined.split(size), labels.split(size), strict=True)
        return torch.cat([checkpoint(costs, *part, use_reentrant=False) for part in parts])

    def streaming(self) -> AdaptiveStep:
        return AdaptiveStep(self, self.encoder.streaming())


def certainty_of(logits: Tensor) -> Tensor:
    """Return the certainty -log(1 - p) for logits (…, C), where p is the probability of the most probable class.

    >>> certainty_of(torch.tensor([0.9, 0.05, 0.05]).log())  # -log 0.1
    tensor(2.3026)
    """
    best = logits.max(dim=-1, keepdim=True)
    # Do not compute 1 - p. If p is close to 1, the difference is rounded to 0, and the certainty would be infinite.
    others = logits.scatter(-1, best.indices, -math.inf).logsumexp(dim=-1)
    return functional.softplus(best.values[..., 0] - others)


def halting_steps(stop_logits: Tensor, lengths: Tensor) -> Tensor:
    """Return -log(1 - stop probability) for each token (B, T), and 0 for padding."""
    return torch.where(token_mask(lengths, stop_logits.shape[1]), functional.softplus(stop_logits.float()), 0.0)


def tokens_read(scores: Tensor, lengths: Tensor, threshold: float | Tensor) -> Tensor:
    """Return the number of tokens (B,) that are read until a halting score reaches the threshold, all below 0.

    >>> scores = torch.tensor([[0.1, 0.9, 1.0], [0.2, 0.3, 0.3]])
    >>> tokens_read(scores, torch.tensor([3, 2]), threshold=0.7)
    tensor([2, 2])
    """
    before = ((scores < threshold) | (threshold < 0)) & token_mask(lengths, scores.shape[1])
    return torch.minimum(before.sum(dim=1) + 1, lengths)


def halting_distribution(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return the exact probability (B, T) that a sequence halts at a token. The last token gets what remains.

    The result is the mean of two distributions: reading starts at the first token, as in prediction, or at a random
    token. The random start lets a network that halts too early learn to read on: else, later tokens had almost no
    gradient.

    >>> scores = -torch.tensor([[0.75, 0.25, 0.125]]).log()  # stop probabilities 1/4, 2/3 and 1/2
    >>> halting_distribution(scores, torch.tensor([3]))  # the mean of [9, 18, 9] / 36 and [3, 14, 19] / 36
    tensor([[0.1667, 0.4444, 0.3889]])
    """
    before = functional.pad(scores, (1, -1))
    reached_from_start = (-before).exp()
    # For each token, sum over all start tokens the probability that reading from the start token reaches this token.
    reached_from_any = (before.logcumsumexp(dim=1) - before).exp()
    reached = (reached_from_start + reached_from_any / lengths[:, None]) / 2
    last = torch.arange(scores.shape[1], device=scores.device) == lengths[:, None] - 1
    stops = torch.where(last, 1.0, -torch.expm1(before - scores))
    return torch.where(token_mask(lengths, scores.shape[1]), reached * stops, 0.0)


class AdaptiveStep(ChunkStep):
    """An `AdaptiveClassifier` that reads one chunk of each sequence, up to the halting token or the end of the chunk.

    Additional outputs: `tokens_read` (B,) in all chunks so far, and `halted` (B,), True for a sequence that has halted.
    """

    more_outputs = ("tokens_read", "halted")
    threshold: Tensor

    def __init__(self, classifier: AdaptiveClassifier, encoder: Any):
        super().__init__(classifier, encoder)
        self.halting = classifier.halting
        self.register_buffer("threshold", classifier.threshold)
        self.states = [*self.states, State("halting_score", (), 0.0), State("tokens_read", (), 0.0)]

    def forward(self, fields: Fields, lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        outputs, encoder_states = self.read(fields, lengths, states)
        *pooling_before, before, tokens_before = states[len(encoder_states) :]
        logits = self.classify(self.pooling.prefixes(outputs, lengths, pooling_before), fields)
        stops = self.halting(outputs, certainty_of(logits))[..., 0]
        scores = before[:, None] + halting_steps(stops, lengths).cumsum(dim=1)
        read = tokens_read(scores, lengths, self.threshold)
        after = scores.gather(1, (read - 1)[:, None])[:, 0]
        pooled, pooling_states = self.pooling.run(outputs, read, pooling_before)
        return {
            "logits": self.classify(pooled, fields),
            "tokens_read": tokens_before.long() + read,
            "halted": (after >= self.threshold) & (self.threshold >= 0),
            "states": [*encoder_states, *pooling_states, after, tokens_before + read],
        }
