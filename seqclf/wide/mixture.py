"""Mixture of a network and wide paths: logits = (1 - share) * scale * network + share * wide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.config.targets import build
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError, first_line
from seqclf.models.network import SequenceNetwork, as_network
from seqclf.models.running_state import State
from seqclf.wide.path import WidePath


class WideModel(nn.Module):
    """Sum of calibrated wide paths: fields of tokens → logits (B, C).

    `scales`: (P,) factor of the logits of each path. `prior`: (C,) added to the logits, the logarithms of the class
    weights of the loss.
    """

    scales: Tensor
    prior: Tensor

    def __init__(self, paths: Iterable[WidePath], num_classes: int):
        super().__init__()
        self.paths = nn.ModuleList(paths)
        self.register_buffer("scales", torch.ones(len(self.paths)))
        self.register_buffer("prior", torch.zeros(num_classes))

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        logits = [path(fields, lengths) * self.scales[index] for index, path in enumerate(self.paths)]
        return torch.stack(logits).sum(dim=0) + self.prior

    def chunk_states(self) -> list[list[State] | None]:
        """Return the states of each path, None for a path that needs whole sequences."""
        return [path.chunk_states() for path in self.paths]  # type: ignore[operator]

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens, see `WidePath.step`. `states`: those of all paths, one after the other."""
        logits, new_states, first = [], [], 0
        for index, (path, own) in enumerate(zip(self.paths, self.chunk_states(), strict=True)):
            last = first + len(own or ())
            of_path, after = path.step(fields, lengths, states[first:last])  # type: ignore[operator]
            logits.append(of_path * self.scales[index])
            new_states += after
            first = last
        return torch.stack(logits).sum(dim=0) + self.prior, new_states

    def settings(self) -> list[dict[str, Any]]:
        """Return the `_target_` dicts that `build_wide` takes."""
        paths: list[WidePath] = list(self.paths)  # type: ignore[arg-type]
        return [{"_target_": path.dotted_path(), **path.settings()} for path in paths]


def build_wide(settings: Sequence[Mapping[str, Any]], fields: Sequence[FieldSpec], num_classes: int) -> WideModel:
    """Build empty wide paths of `_target_` dicts, for the buffers of a checkpoint."""
    paths: list[WidePath] = []
    for index, path in enumerate(settings):
        where = f"wide.paths[{index}]"
        try:
            paths.append(build(path, WidePath, f"{where}._target_", fields=fields, num_classes=num_classes))
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
            raise InputError(where, f"cannot be built ({first_line(error)})") from None
    return WideModel(paths, num_classes)


class Mixture(SequenceNetwork):
    """A trained network beside wide paths.

    With a `share` of 1 the network is not run, and the exported model does not hold it. `scales`: factors of the logits
    of the network and of the wide paths.
    """

    scales: Tensor

    def __init__(self, network: nn.Module, wide: WideModel, share: float):
        super().__init__()
        self.network = network
        self.wide = wide
        self.share = share
        self.register_buffer("scales", torch.tensor([1.0 - share, share]))

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Tensor:
        """Return logits (B, C). See `SequenceNetwork.forward`."""
        logits = self.wide(fields, lengths)
        return logits if self.share == 1 else self.combine(self.network(fields, lengths, host_lengths), logits)

    def combine(self, network: Tensor, wide: Tensor) -> Tensor:
        """Return the logits (B, C) float32 of the mixture from the logits of its network and of its wide paths."""
        return wide if self.share == 1 else self.scales[0] * network.float() + self.scales[1] * wide

    def step_form(self) -> MixtureStep | None:
        """Return the mixture that reads chunk by chunk, None if the network or a wide path needs whole sequences."""
        network = None if self.share == 1 else as_network(self.network).step_form()
        if (network is None and self.share < 1) or any(states is None for states in self.wide.chunk_states()):
            return None
        return MixtureStep(self, network)

    def walkthrough_stages(self, recorded: Any, batch: Any) -> Iterable[Any]:
        return as_network(self.network).walkthrough_stages(recorded, batch)

    def settings(self) -> dict[str, Any]:
        """Return the plain values that `mixed` takes."""
        return {"share": self.share, "paths": self.wide.settings()}


class MixtureStep(nn.Module):
    """A `Mixture` that reads one chunk of tokens (see `ChunkStep`). `network`: the step of its network, if it runs."""

    more_inputs: Mapping[str, float] = MappingProxyType({})
    more_outputs: tuple[str, ...] = ()

    def __init__(self, mixture: Mixture, network: Any):
        super().__init__()
        self.network = network
        self.wide = mixture.wide
        self.scales = mixture.scales
        own = [] if network is None else network.states
        paths = enumerate(self.wide.chunk_states())
        wide = [state._replace(name=f"wide{path}_{state.name}") for path, states in paths for state in states or ()]
        self.states: list[State] = [*own, *wide]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]) -> dict[str, Any]:
        """Return `logits` (B, C) after the chunk and the new `states`. See `ChunkStep.forward`."""
        count = 0 if self.network is None else len(self.network.states)
        logits, new_states = self.wide.step(fields, lengths, states[count:])
        if self.network is None:
            return {"logits": logits, "states": new_states}
        read = self.network(fields, lengths, states[:count])
        total = self.scales[0] * read["logits"] + self.scales[1] * logits
        return {"logits": total, "states": [*read["states"], *new_states]}


def mixed(network: nn.Module, settings: Mapping[str, Any], fields: Sequence[FieldSpec], num_classes: int) -> Mixture:
    """Return a network beside the empty wide paths of `Mixture.settings`, for the buffers of a checkpoint."""
    return Mixture(network, build_wide(settings["paths"], fields, num_classes), settings["share"])
