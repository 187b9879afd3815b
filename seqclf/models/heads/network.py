"""Network of `model=auto`: a frozen front end, and heads whose logits are added with one weight each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.split_rows import SplitRows
from seqclf.config.argument_types import checks_values
from seqclf.config.options import Count, NonNegative, Seed, ZeroOrMore
from seqclf.config.targets import arguments_of, check_arguments, locate_subclass
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.frozen.front_end import FrontEnd, Reading
from seqclf.models.frozen.frozen_outputs import MEANS, STATISTICS, WINDOWS, FrozenOutputs
from seqclf.models.heads.head import Head, HeadsStep
from seqclf.models.heads.head_weights import cross_fitted_sums, fit_head_weights
from seqclf.models.heads.kernels_head import KernelsHead, LinearHead
from seqclf.models.heads.ngrams_head import NgramsHead
from seqclf.models.heads.recurrent_head import RecurrentHead
from seqclf.models.heads.resolve import AUTO, NOT_RESOLVED, resolve_settings
from seqclf.models.heads.statistics_head import StatisticsHead
from seqclf.models.network import SequenceNetwork
from seqclf.models.options import CellName, DropoutShare
from seqclf.models.training_loss import Loss, TrainingLoss

HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "statistics": StatisticsHead,
    "ngrams": NgramsHead,
    "kernels": KernelsHead,
    "recurrent": RecurrentHead,
}
# Rows and cells of logits up to which validation rows set the weights of the heads.
WEIGHTED_ROWS, WEIGHTED_CELLS = 20_000, 10_000_000
FITTED_MEANS = 4000  # rows that set the scales of the means, if the kernels head is not fitted in closed form
Auto = Literal["auto"]
Heads = Auto | list[str | dict[str, Any]]


class HeadsClassifier(SequenceNetwork):
    """A frozen front end, and heads that read its outputs. The logits are a weighted sum of the logits of the heads.

    Each head learns from a loss of its own. The weights of the heads are set after the training, by validation rows;
    before, all are equal. Settings that are "auto" follow from the data (see `resolve_settings`), and a network is
    built only after they are resolved.

    Args:
        heads: Names of heads: recurrent, kernels, linear, statistics, ngrams; or `{_target_: CLASS}` for a `Head` of
            your own.
        window: Number of tokens over which the recurrent head's inputs are averaged.
        dilations: Distances between the taps of the random kernels, in tokens; an empty list for no kernels.
        biases: Number of features of each kernel.
        closed_form: True to fit the kernels head by ridge regression, False to train it.
        cache: False to compute the outputs of the front end anew for each training batch; "auto" to keep them in files.
        label_smoothing: Part of each head's loss that spreads evenly over the classes.
        embedding_size: See `RecurrentHead`, as for all further arguments.

    >>> fields = [{"name": "speed", "kind": "number", "width": 2}]
    >>> network = HeadsClassifier(
    ...     fields, 3, heads=["recurrent", "kernels"], window=2, dilations=[1], closed_form=True,
    ...     embedding_size=8, projection_size=8, hidden_size=8, convolution=0, dropout=0.4, feature_dropout=0.25,
    ... ).eval()
    >>> network({"speed": torch.randn(4, 10, 2)}, torch.tensor([10, 7, 3, 1]), None).shape
    torch.Size([4, 3])
    """

    reads_static = True
    weights: Tensor

    @checks_values("model")
    def __init__(
        self,
        fields: Sequence[FieldSpec],
        num_classes: int,
        *,
        heads: Heads = AUTO,
        window: Count | Auto = AUTO,
        dilations: list[Count] | Auto = AUTO,
        biases: Count = 2,
        kernel_seed: Seed = 0,
        closed_form: bool | Auto = AUTO,
        cache: bool | Auto = AUTO,
        embedding_size: Count | Auto = AUTO,
        projection_size: Count | Auto = AUTO,
        hidden_size: Count | Auto = AUTO,
        cell: CellName = "lstm",
        layers: Count = 1,
        residual_layers: ZeroOrMore = 0,
        bidirectional: bool = True,
        convolution: ZeroOrMore | Auto = AUTO,
        dropout: DropoutShare | Auto = AUTO,
        feature_dropout: DropoutShare | Auto = AUTO,
        token_dropout: DropoutShare = 0.1,
        number_noise: NonNegative = 0.2,
        label_smoothing: DropoutShare = 0.1,
    ):
        super().__init__()
        settings = {name: value for name, value in locals().items() if name in arguments_of(type(self)).names}
        unresolved = [name for name, value in settings.items() if value == AUTO and name not in NOT_RESOLVED]
        if unresolved:
            raise InputError(f"model.{unresolved[0]}=auto", "needs the data", "give a number or a list")
        self.cache, self.label_smoothing = cache, label_smoothing
        self.kernel_seed, self.shortening = kernel_seed, float(window)
        if not bidirectional and window != 1:
            raise InputError(
                f"model.window={window}", "must be 1 where model.bidirectional=false", "set one of the two"
            )
        causal = not bidirectional
        self.front = FrontEnd(fields, window, dilations, biases, kernel_seed, causal)  # type: ignore[arg-type]
        self.names: list[str] = []
        built = []
        for entry in heads:
            name, head = _build_head(entry, settings, self.front, fields, num_classes)
            number = 1 + sum(before.rpartition(" ")[0] == name or before == name for before in self.names)
            self.names.append(name if number == 1 else f"{name} {number}")
            built.append(head)
        self.heads = nn.ModuleList(built)
        if not any(head.is_trained for head in built):
            raise InputError("model.heads", "has no head that is trained", "add recurrent")
        self.register_buffer("weights", torch.full((len(built),), 1 / len(built)))

    @classmethod
    def for_data(cls, settings: Mapping[str, Any], dataset: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return settings with values for "auto", and a text about them. `dataset`: see `Dataset.description()`."""
        return resolve_settings(settings, dataset)

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        """Initialize the embedding of a field with pretrained vectors (see `SequenceNetwork.load_vectors`)."""
        loaded = [head.load_vectors(name, vectors) for head in self.heads]  # type: ignore[operator]
        if not any(loaded):
            super().load_vectors(name, vectors)

    def fit_to(self, rows: SplitRows) -> None:
        """Set all that training does not change, by training rows (see `SequenceNetwork.fit_to`)."""
        self.front.fit(rows, self.kernel_seed)
        outputs = self.frozen_outputs(rows)
        if outputs is not None:
            means, statistics = (
                torch.from_numpy(np.array(outputs.arrays[name], np.float32)) for name in (MEANS, STATISTICS)
            )
        else:
            means, statistics = self._means_and_statistics(rows)
        for head in self.heads:
            head.fit(rows, means, statistics)  # type: ignore[operator]

    def _means_and_statistics(self, rows: SplitRows) -> tuple[Tensor, Tensor]:
        """Means are rounded as in `FrozenOutputs`; if N is large, a sample of the rows is read."""
        closed = any(getattr(head, "closed_form", False) for head in self.heads)
        chosen = np.arange(len(rows)) if closed else np.sort(rows.sample(FITTED_MEANS, 2**62, self.kernel_seed))
        means = torch.zeros(len(chosen), self.front.mean_size if self._reads("reads_means") else 0)
        statistics = torch.zeros(len(chosen), self.front.statistic_size)
        for batch in rows.batches(chosen):
            reading = self.front(batch.fields, batch.lengths)
            at = torch.from_numpy(np.searchsorted(chosen, batch.rows))
            means[at] = reading.means[:, : means.shape[1]].half().float().cpu()
            statistics[at] = reading.statistics.cpu()
        return means, statistics

    def frozen_outputs(self, rows: SplitRows) -> FrozenOutputs | None:
        """Return the outputs of the front end for the training rows, None to compute them for each batch."""
        if self.cache is False or not self.front.mean_size:
            return None
        reads = {name: self._reads(name) for name in ("reads_windows", "reads_means")}
        outputs = FrozenOutputs(self.front, rows, **reads)
        return outputs if outputs.open_or_compute(self.front, rows) else None

    @torch.inference_mode()
    def fit_to_validation(self, rows: SplitRows) -> str | None:
        """Set the weights of the heads by validation rows (see `SequenceNetwork.fit_to_validation`)."""
        if len(self.heads) == 1 or not len(rows):
            return None
        chosen = self._weighing(rows)
        labels = rows.labels[chosen]
        weights = fit_head_weights(self._logits_of(rows, chosen), labels, rows.class_weights[labels])
        self.weights.copy_(torch.from_numpy(weights))
        parts = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(self.names, weights, strict=True))
        return f"{parts}, by {len(chosen):,} validation rows"

    @torch.inference_mode()
    def cross_fitted_logits(self, rows: SplitRows, fifth: np.ndarray) -> np.ndarray | None:
        """Return logits (N, C) by weights of the heads that other fifths set, None for a single head.

        Rows that set no weights, because there are too many, get their logits by the final weights.
        """
        if len(self.heads) == 1 or not len(rows):
            return None
        logits, chosen = self._logits_of(rows, np.arange(len(rows))), self._weighing(rows)
        labels, final = rows.labels[chosen], self.weights.cpu().numpy()
        sums = np.tensordot(final, logits, 1)
        row_weights = rows.class_weights[labels]
        sums[chosen] = cross_fitted_sums(logits[:, chosen], labels, row_weights, final, fifth[chosen])
        return sums

    def _weighing(self, rows: SplitRows) -> np.ndarray:
        """Return the rising positions (M,) of the validation rows that set the weights of the heads."""
        most = max(1, min(WEIGHTED_ROWS, WEIGHTED_CELLS // len(rows.class_weights)))
        return np.sort(rows.sample(most, 2**62, self.kernel_seed))

    def _logits_of(self, rows: SplitRows, chosen: np.ndarray) -> np.ndarray:
        logits = np.empty((len(self.heads), len(chosen), len(rows.class_weights)), np.float32)
        for batch in rows.batches(chosen):
            of_heads = self.head_logits(batch.fields, batch.lengths, batch.lengths.cpu().numpy())
            logits[:, np.searchsorted(chosen, batch.rows)] = torch.stack(of_heads).float().cpu().numpy()
        return logits

    def forget_validation(self) -> None:
        """Give all heads equal weights."""
        self.weights.fill_(1 / len(self.heads))

    def take_from(self, other: HeadsClassifier) -> None:
        """Take the weights of the heads of another network."""
        self.weights.copy_(other.weights)

    def _reads(self, name: str) -> bool:
        return any(getattr(head, name) for head in self.heads)

    def read(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Reading:
        """Return what the front end reads in a batch. `fields` may hold outputs of `FrozenOutputs`."""
        if not self.training:
            return self.read_together([self], fields, lengths)[0]
        if WINDOWS in fields:
            counts = (lengths + (self.front.window - 1)) // self.front.window
            return Reading(counts, fields[WINDOWS].float(), fields[MEANS].float(), fields[STATISTICS])
        reading = self.front(fields, lengths)
        # Rounded as in `FrozenOutputs`, so that the same weights are trained with and without its files.
        return reading._replace(windows=reading.windows.half().float(), means=reading.means.half().float())

    @staticmethod
    def read_together(
        members: Sequence[HeadsClassifier], fields: Mapping[str, Tensor], lengths: Tensor
    ) -> list[Reading]:
        """Return the readings of networks with equal front ends, which reads the batch once."""
        front = members[0].front
        readers = [head for member in members for head in member.heads if head.reads_windows]
        if len(readers) != len(members) or not all(isinstance(head, RecurrentHead) for head in readers):
            return [front(fields, lengths)] * len(members)

        def linear(windows: Tensor, first: int) -> Tensor:
            return torch.cat([head.of_windows(windows, first) for head in readers], dim=-1)  # type: ignore[operator]

        reading = front(fields, lengths, linear)
        parts = (
            reading.windows.tensor_split(len(members), dim=-1)
            if front.window_size
            else [reading.windows] * len(members)
        )
        return [reading._replace(windows=part) for part in parts]

    @staticmethod
    def forward_together(
        members: Sequence[HeadsClassifier],
        fields: Mapping[str, Tensor],
        lengths: Tensor,
        host_lengths: np.ndarray | None,
    ) -> list[Tensor]:
        """Return the logits of each member (see `SequenceNetwork.forward_together`)."""
        if any(type(member).forward is not HeadsClassifier.forward for member in members):  # a class of somebody else
            return [member(fields, lengths, host_lengths) for member in members]
        readings = HeadsClassifier.read_together(members, fields, lengths)
        return [
            member.added([head(fields, lengths, host_lengths, reading) for head in member.heads])
            for member, reading in zip(members, readings, strict=True)
        ]

    def head_logits(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None
    ) -> list[Tensor]:
        """Return the logits (B, C) of each head."""
        reading = self.read(fields, lengths)
        return [head(fields, lengths, host_lengths, reading) for head in self.heads]

    def parts(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None
    ) -> dict[str, Tensor]:
        """Return the logits of each head, those that read the least of the order first."""
        if len(self.names) == 1:
            return {}
        logits = dict(zip(self.names, self.head_logits(fields, lengths, host_lengths), strict=True))
        known = list(HEADS)  # the recurrent head comes last, also after own heads
        return {name: logits[name] for name in sorted(logits, key=lambda name: _place(name.partition(" ")[0], known))}

    def outputs(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None
    ) -> dict[str, Tensor]:
        return {"logits": self(fields, lengths, host_lengths), **self.parts(fields, lengths, host_lengths)}

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Tensor:
        """Return logits (B, C). See `SequenceNetwork.forward`."""
        return self.added(self.head_logits(fields, lengths, host_lengths))

    def added(self, logits: Sequence[Tensor]) -> Tensor:
        """Return the weighted sum (B, C) of the logits of the heads."""
        parts = [part.float() * self.weights[index] for index, part in enumerate(logits)]
        return torch.stack(parts).sum(dim=0)

    def step_form(self) -> HeadsStep | None:
        """Return the streaming form, or None if a head needs whole sequences."""
        forms = [head.step_form() for head in self.heads]  # type: ignore[operator]
        if not self.front.causal or any(form is None for form in forms):
            return None
        readers = [head for head in self.heads if head.reads_windows]
        is_one = len(readers) == 1 and isinstance(readers[0], RecurrentHead)
        return HeadsStep(self, forms, readers[0] if is_one else None)

    def training_loss(
        self,
        fields: Mapping[str, Tensor],
        lengths: Tensor,
        host_lengths: np.ndarray | None,
        labels: Tensor,
        loss: Loss,
    ) -> TrainingLoss:
        """Return the mean logits of the heads that are trained, its loss, and the sum of the losses of these heads.

        A head that was fitted to the training rows before the first step would hide what the others learn of them.
        """
        share, reading, logits = self.label_smoothing, self.read(fields, lengths), []
        total = torch.zeros((), device=labels.device)
        for head in self.heads:
            if head.is_trained:
                part = head(fields, lengths, host_lengths, reading).float()
                total = total + (1 - share) * loss(part, labels) - share * part.log_softmax(dim=-1).mean()
                penalty = head.penalty()  # type: ignore[operator]
                total = total if penalty is None else total + penalty
                logits.append(part.detach())
        mean = torch.stack(logits).mean(dim=0)
        return TrainingLoss(mean, loss(mean, labels), total)


def _build_head(
    entry: Any, settings: Mapping[str, Any], front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int
) -> tuple[str, Head]:
    if isinstance(entry, str):
        if entry not in HEADS:
            raise InputError(f"model.heads=[{entry}]", f"must be some of {', '.join(HEADS)}, or have a _target_")
        kind, own, name = HEADS[entry], {}, entry
    else:
        kind = locate_subclass(entry.get("_target_"), Head, "model.heads._target_")
        own, name = {key: value for key, value in entry.items() if key != "_target_"}, kind.__name__
    taken = arguments_of(kind).names
    passed = {key: value for key, value in settings.items() if key in taken and key not in ("fields", "num_classes")}
    check_arguments("model.heads", kind, [*own], ["front", "fields", "num_classes", *passed.keys() - own.keys()])
    return name, kind(front, fields, num_classes, **{**passed, **own})


def _place(name: str, known: list[str]) -> float:
    """Return the place of a head in the order of `known` names. Own heads come before the last one."""
    return known.index(name) if name in known else len(known) - 1.5
