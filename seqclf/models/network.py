"""Base class of networks. A network maps a batch of sequences to logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.batches import SplitRows
from seqclf.errors import InputError, first_line

Fields = Mapping[str, Tensor]  # name of a field → (B, T, …), static fields (B, …)
HostLengths = np.ndarray | None  # (B,) on the CPU; None in an export
Loss = Callable[[Tensor, Tensor], Tensor]  # logits (N, C) and labels (N,) → mean loss


class TrainingLoss(NamedTuple):
    """Logits (B, C) float32 of a batch, their `loss` for metrics, and the `total` loss that training minimizes."""

    logits: Tensor
    loss: Tensor
    total: Tensor


@dataclass(frozen=True)
class WeighedLoss:
    """A loss whose mean over the rows of a batch is weighted. `weights`: (B,) of mean 1 over the split."""

    loss: Loss
    weights: Tensor

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        if len(labels) != len(self.weights):
            problem = f"the network computes the loss of {len(labels)} rows in a batch of {len(self.weights)}"
            raise InputError("data.weight", problem, "use loss_of_rows(loss, rows), or train without weights")
        return (row_costs(self.loss, logits, labels) * self.weights).mean()


def loss_of_rows(loss: Loss, rows: Tensor) -> Loss:
    """Return the loss of the rows at the (M,) positions `rows` of a batch, which may repeat, with their weights."""
    return WeighedLoss(loss.loss, loss.weights[rows]) if isinstance(loss, WeighedLoss) else loss


def row_costs(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of each row (N,). For the losses of this package, their mean equals the loss of the batch.

    >>> row_costs(torch.nn.CrossEntropyLoss(), torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]))
    tensor([0.6931, 0.3133])
    """
    if hasattr(loss, "row_costs"):
        return loss.row_costs(logits, labels)
    if getattr(loss, "reduction", None) == "mean":  # the loss classes of PyTorch have the attribute `reduction`
        of_rows = copy.copy(loss)
        of_rows.reduction = "none"  # type: ignore[attr-defined]
        return of_rows(logits, labels)
    try:
        return torch.func.vmap(lambda row, label: loss(row[None], label[None]))(logits, labels)
    except RuntimeError as error:
        name, reason = type(loss).__name__, first_line(error)
        problem = f"the loss of each row is needed (data.weight, model=adaptive), and {name} gives none ({reason})"
        raise InputError("loss", problem, "add a method row_costs(logits, labels)") from None


class SequenceNetwork(nn.Module):
    """Base class of networks: the fields of a batch of sequences → logits (B, C).

    The constructor gets `fields` (the field specs of the inputs), `num_classes`, and the arguments in the network's
    config. The logits of a sequence must depend only on its tokens. A subclass must define `forward`, and may define
    the other methods. An attribute `members` lists modules that are trained independently.

    >>> import torch
    >>> class Mean(SequenceNetwork):
    ...     def __init__(self, fields, num_classes):
    ...         super().__init__()
    ...         self.scores = nn.Embedding(50, num_classes)
    ...
    ...     def forward(self, fields, lengths, host_lengths):
    ...         (tokens,) = fields.values()
    ...         return self.scores(tokens).sum(dim=1) / lengths[:, None]
    >>> network = Mean([{"name": "word", "kind": "category", "size": 50}], num_classes=3)
    >>> network({"word": torch.ones(2, 4, dtype=torch.int64)}, torch.tensor([4, 4]), None).shape
    torch.Size([2, 3])
    """

    # True if the constructor and `forward` get the static fields too, whose values are (B,) or (B, D).
    reads_static: bool = False
    # Factor by which the network shortens sequences before most of its work, so that a training takes more steps.
    shortening: float = 1.0
    # What `fit_to_validation` sets, in words.
    set_by_validation: ClassVar[str] = "buffers of the network"
    # Names of outputs beside the logits, a number or a vector for each row (see `outputs`).
    extra_outputs: ClassVar[tuple[str, ...]] = ()

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        """Return logits (B, C). `fields[name]`: (B, T) int64 or (B, T, D) float32. `lengths`: (B,) int64.

        `host_lengths`: the lengths as a NumPy array, because packed sequences need them on the CPU, and copying
        `lengths` from the GPU would wait for the GPU. During the export to ONNX, `host_lengths` is `None`.
        """
        raise NotImplementedError

    def outputs(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> dict[str, Tensor]:
        """Return `logits` (B, C) and the `extra_outputs` (B,) or (B, D), exported, predicted and scored by name.

        Further logits (B, C) are those of a part of the network that is a model on its own. Runs score them beside the
        network, and bundles leave them out.
        """
        return {"logits": self(fields, lengths, host_lengths)}

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        """Return the logits and the loss of a batch, which may have more terms than that of the logits."""
        logits = self(fields, lengths, host_lengths).float()
        cost = loss(logits, labels)
        return TrainingLoss(logits, cost, cost)

    def fit_to(self, rows: SplitRows) -> None:
        """Set buffers by the training rows, such as scales.

        Called once, before the first optimizer step, and never for a network with weights of a checkpoint. With several
        ranks, all get the buffers of the first rank.
        """

    def fit_to_validation(self, rows: SplitRows) -> str | None:
        """Set buffers by validation rows, after the training. Return a text about them, or None if there are none.

        The rows are those that no decision holds out.
        """
        return None

    def cross_fitted_logits(self, rows: SplitRows, fifth: np.ndarray) -> np.ndarray | None:
        """Return logits (N, C) by what the rows of other fifths would have set, None if validation sets nothing.

        Half of validation is held out for a guarantee where a class defines `fit_to_validation` and not this method.
        `rows`: rows that `fit_to_validation` has read. `fifth`: (N,) number of each row's fifth.
        """
        return None

    def embedding_layers(self) -> Mapping[str, nn.Module]:
        """Return the layers whose inputs (B, D), in this order, are the embedding of a sequence, by name of the part.

        `forward` and the streaming form must call each layer; the last call counts. Without layers, which is the
        default, there is no embedding.
        """
        return {}

    def streaming(self) -> Any:
        """Return the streaming form of this network (see `ChunkStep`), or `None` if there is no streaming form."""
        return None


def cross_fits(kind: type[SequenceNetwork], members: int = 1) -> bool:
    """Return True if the class that defines `fit_to_validation`, or one below, defines `cross_fitted_logits`.

    An `Ensemble` of such networks does not cross-fit; a network with a `config_class` holds its members itself.
    """
    hooks = {"fit_to_validation", "cross_fitted_logits"}
    owner = next(base for base in kind.__mro__ if hooks & vars(base).keys())
    is_one = members == 1 or owner is SequenceNetwork or hasattr(kind, "config_class")
    return is_one and "cross_fitted_logits" in vars(owner)


@contextmanager
def recorded_embedding(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Yield a dict that gets the input of each of the `embedding_layers` when a network runs in the block.

    >>> layer = nn.Linear(2, 3)
    >>> with recorded_embedding({"pooled": layer}) as parts:
    ...     logits = layer(torch.ones(1, 2))
    >>> parts
    {'pooled': tensor([[1., 1.]])}
    """
    parts: dict[str, Tensor] = {}

    def record(name: str) -> Callable[[Any, Any], None]:
        return lambda _, inputs: parts.update({name: inputs[0]})

    hooks = [layer.register_forward_pre_hook(record(name)) for name, layer in layers.items()]
    try:
        yield parts
    finally:
        for hook in hooks:
            hook.remove()


def joined_embedding(parts: Mapping[str, Tensor], layers: Mapping[str, nn.Module]) -> Tensor:
    """Return the embedding (B, D) float32. Raises InputError for a layer that was not called with a vector a row."""
    for name in layers:
        values = parts.get(name)
        # In an export, the size of an axis that is not fixed is not an int.
        is_vector = values is not None and values.dim() == 2 and isinstance(values.shape[1], int)
        if values is None or not is_vector or not values.is_floating_point():
            problem = "is not called" if values is None else "gets no vector of a fixed size for each row"
            remedy = "return layers that forward and streaming call with a tensor (B, D) of floats"
            raise InputError(f"embedding_layers: {name}", problem, remedy)
    return torch.cat([parts[name].float() for name in layers], dim=1)


def vote(logits: Tensor) -> Tensor:
    """Average the members' probabilities and return them as log-probabilities (B, C). `logits`: (members, B, C).

    >>> import torch
    >>> vote(torch.tensor([[[0.8, 0.2]], [[0.4, 0.6]]]).log()).softmax(dim=-1)
    tensor([[0.6000, 0.4000]])
    """
    # Average probabilities and not raw logits, because a member with larger logits would get more weight.
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(logits))
