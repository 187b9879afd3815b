"""Network of `model=auto`: a frozen front end, and heads whose logits are added with one weight each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.batches import SplitRows
from seqclf.config.build import build
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.auto.config import HeadsConfig
from seqclf.models.auto.feature_cache import MEANS, STATISTICS, WINDOWS, feature_cache
from seqclf.models.auto.front_end import FrontEnd, FrontOutputs
from seqclf.models.auto.head import Head
from seqclf.models.auto.head_weights import cross_fitted, sample, set_weights
from seqclf.models.auto.ngrams_head import NgramsHead
from seqclf.models.auto.recurrent_head import RecurrentHead
from seqclf.models.auto.statistics_heads import CategoriesHead, KernelsHead, LinearHead, StatisticsHead
from seqclf.models.network import Fields, HostLengths, Loss, SequenceNetwork, TrainingLoss, WeighedLoss, vote
from seqclf.models.streaming import HeadsStep

# Functions that build a head from the config, and from `front`, `fields` and `num_classes`.
HEADS: dict[str, Callable[..., Head]] = {
    "linear": lambda config, *given: LinearHead(*given, closed_form=config.closed_form),
    "statistics": lambda config, *given: StatisticsHead(*given),
    "categories": lambda config, *given: CategoriesHead(*given),
    "ngrams": lambda config, *given: NgramsHead(*given),
    "kernels": lambda config, *given: KernelsHead(*given, closed_form=config.closed_form),
    "recurrent": lambda config, front, fields, classes: RecurrentHead(front, fields, classes, config.recurrent),
}
FITTED_MEANS = 4000  # rows that set the scales of the means, if the kernels head is not fitted in closed form


class HeadsClassifier(SequenceNetwork):
    """A frozen front end, and heads that read its outputs. The logits are a weighted sum of the logits of the heads.

    Each head learns from a loss of its own. The weights of the heads are set after the training, by validation rows;
    before, all are equal. Each member of an ensemble has heads and weights of its own, and the members vote: only the
    front end and the heads that are not trained are the same.

    >>> fields = [{"name": "speed", "kind": "number", "width": 2}]
    >>> sizes = dict.fromkeys(["embedding_size", "projection_size", "hidden_size"], 8)
    >>> more = {"convolution": 0, "dropout": 0.4, "feature_dropout": 0.25, "closed_form": True}
    >>> config = HeadsConfig.of({**sizes, **more, "heads": ["recurrent", "kernels"], "window": 2, "dilations": [1]})
    >>> network = HeadsClassifier(fields, 3, config).eval()
    >>> network({"speed": torch.randn(4, 10, 2)}, torch.tensor([10, 7, 3, 1]), None).shape
    torch.Size([4, 3])
    """

    reads_static = True
    set_by_validation = "weights of the heads"
    config_class: ClassVar[type[HeadsConfig]] = HeadsConfig
    weights: Tensor

    def __init__(self, fields: Sequence[FieldSpec], num_classes: int, config: HeadsConfig):
        super().__init__()
        front = config.front
        self.config, self.shortening = config, float(front.window)
        kernels = (front.window, front.dilations, front.biases, front.kernel_seed)
        self.front = FrontEnd(fields, *kernels, causal=not config.recurrent.bidirectional, cache=front.cache)
        heads = [_build_head(entry, config, self.front, fields, num_classes) for entry in config.heads]
        if not any(head.is_trained for head in heads):
            raise InputError("model.heads", "has no head that is trained", "add recurrent")
        self.names = _numbered(
            entry if isinstance(entry, str) else type(head).__name__
            for entry, head in zip(config.heads, heads, strict=True)
        )
        for _ in range(config.members - 1):
            heads += [
                _build_head(entry, config, self.front, fields, num_classes) if head.is_trained else head
                for entry, head in zip(config.heads, heads, strict=False)
            ]
        self.heads = nn.ModuleList(heads)
        self.register_buffer("weights", torch.full((config.members, len(self.names)), 1 / len(self.names)))

    @property
    def members(self) -> list[nn.ModuleList]:
        """Heads of each member."""
        count = len(self.names)
        return [self.heads[first : first + count] for first in range(0, len(self.heads), count)]

    @property
    def trained_heads(self) -> dict[str, Head]:
        """Heads that are trained, by name, those of further members with their number."""
        ends = ["", *(f" of member {number}" for number in range(2, len(self.weights) + 1))]
        names = [f"{name}{end}" for end in ends for name in self.names]
        return {name: head for name, head in zip(names, self.heads, strict=True) if head.is_trained}  # type: ignore[misc]

    def fit_to(self, rows: SplitRows) -> None:
        """Set all that training does not change."""
        self.front.fit(rows, self.config.front.kernel_seed)
        outputs = feature_cache(self, rows)
        if outputs is not None:
            arrays = (np.array(outputs.arrays[name], np.float32) for name in (MEANS, STATISTICS))
            means, statistics = map(torch.from_numpy, arrays)
        else:
            means, statistics = self._means_and_statistics(rows)
        for head in dict.fromkeys(self.heads):
            head.fit(rows, means, statistics)  # type: ignore[operator]

    def _means_and_statistics(self, rows: SplitRows) -> tuple[Tensor, Tensor]:
        """Means are rounded as in `FrozenOutputs`; if N is large, a sample of the rows is read."""
        closed = any(getattr(head, "closed_form", False) for head in self.heads)
        chosen = np.arange(len(rows)) if closed else sample(rows, FITTED_MEANS, self.config.front.kernel_seed)
        means = torch.zeros(len(chosen), self.front.mean_size if any(head.reads_means for head in self.heads) else 0)
        statistics = torch.zeros(len(chosen), self.front.statistic_size)
        for batch in rows.batches(chosen):
            reading = self.front(batch.fields, batch.lengths)
            at = torch.from_numpy(np.searchsorted(chosen, batch.rows))
            means[at] = reading.means[:, : means.shape[1]].half().float().cpu()
            statistics[at] = reading.statistics.cpu()
        return means, statistics

    def fit_to_validation(self, rows: SplitRows) -> str | None:
        """Set the weights of the heads of each member."""
        return None if len(self.names) == 1 or not len(rows) else set_weights(self, rows)

    def cross_fitted_logits(self, rows: SplitRows, fifth: np.ndarray) -> np.ndarray | None:
        """Return logits (N, C) by weights of the heads that other fifths set, None for a single head.

        Rows that set no weights, because there are too many, get their logits by the final weights.
        """
        return None if len(self.names) == 1 or not len(rows) else cross_fitted(self, rows, fifth)

    def read(self, fields: Fields, lengths: Tensor) -> list[FrontOutputs]:
        """Return what each member reads in a batch. In training, `fields` may hold outputs of `FrozenOutputs`."""
        count = len(self.weights)
        if not self.training:
            return self._read_projected(fields, lengths)
        if WINDOWS in fields:
            counts = (lengths + (self.front.window - 1)) // self.front.window
            return [FrontOutputs(counts, fields[WINDOWS].float(), fields[MEANS].float(), fields[STATISTICS])] * count
        reading = self.front(fields, lengths)
        # Rounded as in `FrozenOutputs`, so that the same weights are trained with and without its files.
        return [reading._replace(windows=reading.windows.half().float(), means=reading.means.half().float())] * count

    def _read_projected(self, fields: Fields, lengths: Tensor) -> list[FrontOutputs]:
        """If one head of each member reads windows, its linear layer does, and all windows never exist together."""
        count = len(self.weights)
        readers = [head for head in self.heads if head.reads_windows]
        if len(readers) != count or not all(isinstance(head, RecurrentHead) for head in readers):
            return [self.front(fields, lengths)] * count

        def linear(windows: Tensor, first: int) -> Tensor:
            return torch.cat([head.of_windows(windows, first) for head in readers], dim=-1)  # type: ignore[operator]

        reading = self.front(fields, lengths, linear)
        if not self.front.window_size:
            return [reading] * count
        return [reading._replace(windows=part) for part in reading.windows.tensor_split(count, dim=-1)]

    def head_logits(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> list[list[Tensor]]:
        """Return the logits (B, C) of each head of each member."""
        readings = self.read(fields, lengths)
        return [
            [head(fields, lengths, host_lengths, reading) for head in heads]
            for heads, reading in zip(self.members, readings, strict=True)
        ]

    def outputs(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> dict[str, Tensor]:
        """Return the logits, and the vote of the members for each of several heads, the recurrent one last."""
        of_members = self.head_logits(fields, lengths, host_lengths)
        logits = {name: _voted(parts) for name, *parts in zip(self.names, *of_members, strict=True)}
        known = list(HEADS)
        names = sorted(self.names, key=lambda name: _place(name.partition(" ")[0], known)) if len(logits) > 1 else []
        return {"logits": self.added(of_members), **{name: logits[name] for name in names}}

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        return self.added(self.head_logits(fields, lengths, host_lengths))

    def added(self, logits: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return the vote (B, C) of the members, whose logits are weighted sums of those of their heads."""
        sums = []
        for member, of_heads in enumerate(logits):
            parts = [part.float() * self.weights[member, index] for index, part in enumerate(of_heads)]
            sums.append(torch.stack(parts).sum(dim=0))
        return _voted(sums)

    def embedding_layers(self) -> dict[str, nn.Module]:
        """Return the layers of the trained heads, and one that gets the statistics if a head reads them."""
        of_heads = ((name, head.embedding_layer()) for name, head in self.trained_heads.items())
        layers = {name: layer for name, layer in of_heads if layer is not None}
        reads_statistics = not all(isinstance(head, (RecurrentHead, NgramsHead)) for head in self.heads)
        return {**layers, "statistics": self.front.scaled} if reads_statistics and self.front.statistic_size else layers

    def streaming(self) -> HeadsStep | None:
        """Return the streaming form, or None for several members, or if a head needs whole sequences."""
        forms = [head.streaming() for head in self.heads]  # type: ignore[operator]
        if len(self.weights) > 1 or not self.front.causal or any(form is None for form in forms):
            return None
        readers = [head for head in self.heads if head.reads_windows]
        is_one = len(readers) == 1 and isinstance(readers[0], RecurrentHead)
        return HeadsStep(self, forms, readers[0] if is_one else None)

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        """Return the mean logits of the heads in training, its loss, and the sum of the losses of these heads.

        A head that was fitted to the training rows before the first step would hide what the others learn of them.
        """
        share, means, total = self.config.label_smoothing, [], torch.zeros((), device=labels.device)
        for heads, reading in zip(self.members, self.read(fields, lengths), strict=True):
            trained = [head for head in heads if head.is_trained and not head.is_stopped]
            if not trained:
                continue
            logits = []
            for head in trained:
                part = head(fields, lengths, host_lengths, reading).float()
                total = total + (1 - share) * loss(part, labels) - share * _mean(part.log_softmax(dim=-1), loss)
                penalty = head.penalty()  # type: ignore[operator]
                total = total if penalty is None else total + penalty
                logits.append(part.detach())
            means.append(torch.stack(logits).mean(dim=0))
        mean = _voted(means)
        return TrainingLoss(mean, loss(mean, labels), total)


def _mean(values: Tensor, loss: Loss) -> Tensor:
    """Return the mean of values (B, C) by the weights of the rows in a loss."""
    return (values.mean(dim=-1) * loss.weights).mean() if isinstance(loss, WeighedLoss) else values.mean()


def _build_head(
    entry: Any, config: HeadsConfig, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int
) -> Head:
    if isinstance(entry, str):
        if entry not in HEADS:
            raise InputError(f"model.heads=[{entry}]", f"must be some of {', '.join(HEADS)}, or have a _target_")
        return HEADS[entry](config, front, fields, num_classes)
    return build(entry, Head, "model.heads._target_", front=front, fields=fields, num_classes=num_classes)


def _numbered(names: Iterable[str]) -> list[str]:
    """Return names of which repeated ones have a number, such as `recurrent 2`."""
    given = list(names)
    counts = [given[: index + 1].count(name) for index, name in enumerate(given)]
    return [name if count == 1 else f"{name} {count}" for name, count in zip(given, counts, strict=True)]


def _voted(logits: Sequence[Tensor]) -> Tensor:
    return logits[0] if len(logits) == 1 else vote(torch.stack([part.float() for part in logits]))


def _place(name: str, known: list[str]) -> float:
    return known.index(name) if name in known else len(known) - 1.5  # own heads come before the last one
