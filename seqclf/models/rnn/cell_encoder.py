"""Recurrent encoder of stacked layers of any recurrent cell. Padding does not change the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from seqclf.config.build import TargetOf, arguments_of, build, locate_subclass
from seqclf.data.field_spec import FieldSpec
from seqclf.models.classifier import SequenceEncoder
from seqclf.models.network import HostLengths
from seqclf.models.pooling import token_mask
from seqclf.models.rnn.recurrent import check_residual_layers, flip_order, reorder
from seqclf.models.rnn.recurrent_cell import RecurrentCell, check_cell, initial_states, number_spec, run_cell
from seqclf.models.streaming import State
from seqclf.settings.base import Count, DropoutShare, ZeroOrMore

KEY = "model.encoder.cell"


class CellEncoder(SequenceEncoder):
    """Encoder of stacked layers of a `RecurrentCell`: (B, T, `input_size`) and lengths (B,) → (B, T, `self.size`).

    `cell`: config of the cell, with its class in `_target_`. Each layer and direction has its own cell, whose
    constructor gets `input_size`, `hidden_size` and `field_specs` if it takes them. The other arguments are those of
    `Recurrent`. The ONNX export has one `Scan` for each layer and direction. A unidirectional encoder has a streaming
    form. Raises InputError if a field that the cell reads is missing or not numeric, or for a wrong cell (see
    `check_cell`).

        model:
          encoder:
            _target_: seqclf.extend.CellEncoder
            cell:
              _target_: mypackage.cells.Leaky
    """

    def __init__(
        self,
        input_size: int,
        *,
        cell: Annotated[Mapping[str, Any], TargetOf(RecurrentCell)],
        field_specs: Sequence[FieldSpec] = (),
        hidden_size: Count = 96,
        layers: Count = 1,
        residual_layers: ZeroOrMore = 0,
        bidirectional: bool = True,
        dropout: DropoutShare = 0.25,
    ):
        super().__init__()
        check_residual_layers(residual_layers, layers)
        self.dropout = nn.Dropout(dropout)
        self.size = input_size
        forward_cells, backward_cells = [], []
        for _ in range(layers):
            forward_cells.append(_build_cell(cell, self.size, hidden_size, field_specs))
            if bidirectional:
                backward_cells.append(_build_cell(cell, self.size, hidden_size, field_specs))
                self.backward_size = backward_cells[-1].size
            self.size = forward_cells[-1].size + self.backward_size
        # PyTorch annotates the modules of a ModuleList as Module.
        self.forward_cells: Any = nn.ModuleList(forward_cells)
        self.backward_cells: Any = nn.ModuleList(backward_cells)
        self.structure = tuple(dict.fromkeys(name for part in forward_cells for name in part.fields))
        self.first_residual = layers - residual_layers
        self.scales = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(residual_layers))

    # The first arguments are positional only, because a field of the data may have the name of one of them.
    def forward(  # type: ignore[override]
        self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths, /, **fields: Tensor
    ) -> tuple[Tensor, Tensor, HostLengths]:
        inside = token_mask(lengths, tokens.shape[1])
        shortest = 0 if host_lengths is None or torch.compiler.is_exporting() else int(host_lengths.min())
        order = flip_order(lengths, tokens.shape[1]) if self.backward_cells else None
        for index, cell in enumerate(self.forward_cells):
            inputs = self.dropout(tokens) if index else tokens  # the caller applied dropout to the first input
            outputs = self._run(cell, inputs, fields, inside, shortest)
            if order is not None:
                # Reverse the tokens of each sequence, so that the backward direction starts at the last token.
                backward = self.backward_cells[index]
                reversed_fields = {name: reorder(fields[name], order) for name in backward.fields}
                flipped = self._run(backward, reorder(inputs, order), reversed_fields, inside, shortest)
                outputs = torch.cat([outputs, reorder(flipped, order)], dim=-1)
            tokens = self.joined(index, tokens, outputs)
        return tokens, lengths, host_lengths

    def _run(
        self, cell: RecurrentCell, tokens: Tensor, fields: Mapping[str, Tensor], inside: Tensor, shortest: int
    ) -> Tensor:
        start, own = initial_states(cell, tokens), [fields[name] for name in cell.fields]
        return run_cell(cell, tokens, inside, start, own, shortest=shortest, keeps_states=False)[0]

    def joined(self, layer: int, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the tokens after a layer: its outputs, added to its inputs if the layer is residual."""
        residual = layer - self.first_residual
        return outputs if residual < 0 else inputs + self.scales[residual] * outputs

    def streaming(self) -> CellStep | None:
        # A backward direction cannot read in chunks, because it starts at the last token, which is in the last chunk.
        return None if self.backward_cells else CellStep(self)


def _build_cell(
    config: Mapping[str, Any], input_size: int, hidden_size: int, specs: Sequence[FieldSpec]
) -> RecurrentCell:
    names = arguments_of(locate_subclass(config["_target_"], RecurrentCell, f"{KEY}._target_")).names
    offered = {"hidden_size": hidden_size, "field_specs": specs}
    taken = {name: value for name, value in offered.items() if name in names}
    cell = build({**taken, **config}, RecurrentCell, f"{KEY}._target_", input_size=input_size)
    # A field is named by an argument in the config, such as `gap`, or by the class.
    keys = {value: f"{KEY}.{name}" for name, value in config.items() if isinstance(value, str)}
    where = f"{KEY}._target_={config['_target_']}"
    widths = [number_spec(name, specs, keys.get(name, f"{where}.fields"))["width"] for name in cell.fields]
    check_cell(cell, input_size, widths, where)
    return cell


class CellStep(nn.Module):
    """Streaming form of a unidirectional `CellEncoder` (see `SequenceEncoder.streaming`)."""

    def __init__(self, encoder: CellEncoder):
        super().__init__()
        self.encoder = encoder
        self.states = [
            State(f"{state.name}_{layer}", tuple(state.shape), state.initial)
            for layer, cell in enumerate(encoder.forward_cells)
            for state in cell.states
        ]

    def forward(
        self, tokens: Tensor, lengths: Tensor, states: Sequence[Tensor], /, **fields: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        inside = token_mask(lengths, tokens.shape[1])
        remaining, last = list(states), []
        for index, cell in enumerate(self.encoder.forward_cells):
            own, remaining = remaining[: len(cell.states)], remaining[len(cell.states) :]
            outputs, new = run_cell(cell, tokens, inside, own, [fields[name] for name in cell.fields])
            tokens = self.encoder.joined(index, tokens, outputs)
            last += new
        return tokens, last
