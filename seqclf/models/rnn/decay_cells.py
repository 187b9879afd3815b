"""Recurrent cells that forget with the time between tokens: GRU-D and the time-aware LSTM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.rnn.recurrent_cell import FieldName, RecurrentCell, number_spec
from seqclf.models.streaming import State
from seqclf.settings.base import Count

KEY = "model.encoder.cell.field"
PARTS = 3  # values, masks and elapsed times, with as many channels each
INITIAL_DECAY = 0.5  # initial rate and offset of the decay of a number, so that the decay has a gradient at usual times


class DecayGRU(RecurrentCell):
    """GRU cell in which missing numbers decay towards the training mean, and the hidden state decays towards 0.

    The cell reads W numbers x of a field, with the masks m (1: present, 0: missing) and the times d since the last
    known value. With the last known values x' (0 before the first), the hidden state h after the previous token, and
    the embedded token e:

        decay_x = exp(-max(0, rate d + offset))      one rate and offset for each number
        decay_h = exp(-max(0, W d + b))              one factor for each hidden unit
        x* = m x + (1 - m) decay_x x'                0 is the training mean, because the field is scaled
        h' = GRU([e, x*, m], decay_h h)

    `field`: name of a numeric field with the options `missing` and `since`, and without `scale: sequence` or `scale:
    none`. The states are `hidden` (B, `hidden_size`), which is the output, and `last` (B, W), the last known values.
    Reference: Che et al. 2018, "Recurrent Neural Networks for Multivariate Time Series with Missing Values". The paper
    has no embedded token; here, it holds the other fields. d is encoded as a standardized logarithm.

    >>> specs = [{"name": "vitals", "kind": "number", "width": 6, "scaled": [True, True, False, False, True, True]}]
    >>> cell = DecayGRU(5, 8, field="vitals", field_specs=specs)
    >>> state = {"hidden": torch.zeros(3, 8), "last": torch.zeros(3, 2)}
    >>> output, state = cell.step(torch.zeros(3, 5), state, torch.ones(3, 6))
    >>> output.shape, state["last"][0].tolist()
    (torch.Size([3, 8]), [1.0, 1.0])
    """

    def __init__(self, input_size: int, hidden_size: Count, *, field: FieldName, field_specs: Sequence[FieldSpec]):
        super().__init__()
        self.width = _numbers_of(field, field_specs)
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,)), State("last", (self.width,))]
        self.fields = (field,)
        self.rate = nn.Parameter(torch.full((self.width,), INITIAL_DECAY))
        self.offset = nn.Parameter(torch.full((self.width,), INITIAL_DECAY))
        self.hidden_decay = nn.Linear(self.width, hidden_size)
        self.gru = nn.GRUCell(input_size + 2 * self.width, hidden_size)

    def step(  # type: ignore[override]
        self, inputs: Tensor, state: Mapping[str, Tensor], observed: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Step by `observed`: (B, 3 W) values, masks and elapsed times."""
        values, masks, elapsed = observed.split(self.width, dim=-1)
        last = torch.where(masks > 0, values, state["last"])
        decayed = last * torch.exp(-(self.rate * elapsed + self.offset).relu())
        known = torch.where(masks > 0, values, decayed)
        before = state["hidden"] * torch.exp(-self.hidden_decay(elapsed).relu())
        hidden = self.gru(torch.cat([inputs, known, masks], dim=-1), before)
        return hidden, {"hidden": hidden, "last": last}


def _numbers_of(field: str, specs: Sequence[FieldSpec]) -> int:
    """Return the number W of values of a field. Raises InputError if it lacks masks, elapsed times or a scale."""
    spec = number_spec(field, specs, KEY)
    width, rest = divmod(spec["width"], PARTS)
    # Masks are not scaled, and values and elapsed times are.
    if rest or spec.get("scaled") != [True] * width + [False] * width + [True] * width:
        problem = "is not a field of scaled numbers with masks and elapsed times"
        remedy = f"set data.fields.{field}.missing=last and data.fields.{field}.since=TIME_FIELD, or since=tokens"
        raise InputError(f"{KEY}={field}", problem, remedy)
    return width


class TimeLSTM(RecurrentCell):
    """LSTM cell that discounts its short-term memory by the time since the previous token.

    With the memory c and the hidden state h after the previous token, and the gap z of the token:

        s = tanh(W c + b)                      short-term memory
        g = sigmoid(offset - softplus(rate) z) decreases with the gap, one factor for each unit
        c* = c - s + g s                       the long-term memory c - s stays
        h', c' = LSTM(inputs, (h, c*))

    `gap`: name of a time field, or of a numeric field whose first channel is the gap. Both states and the output are
    (B, `hidden_size`). Reference: Baytas et al. 2017, "Patient Subtyping via Time-Aware LSTM Networks". seqclf encodes
    a gap as a standardized logarithm, so a learned decreasing function of z replaces the 1 / log(e + gap) of the paper.

    >>> cell = TimeLSTM(5, 8, gap="seconds")
    >>> state = {"hidden": torch.zeros(2, 8), "memory": torch.ones(2, 8)}
    >>> output, state = cell.step(torch.zeros(2, 5), state, torch.tensor([[0.0], [2.0]]))
    >>> output.shape
    torch.Size([2, 8])
    """

    def __init__(self, input_size: int, hidden_size: Count, *, gap: FieldName):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,)), State("memory", (hidden_size,))]
        self.fields = (gap,)
        self.short_term = nn.Linear(hidden_size, hidden_size)
        self.rate = nn.Parameter(torch.zeros(hidden_size))
        self.offset = nn.Parameter(torch.zeros(hidden_size))
        self.lstm = nn.LSTMCell(input_size, hidden_size)

    def step(  # type: ignore[override]
        self, inputs: Tensor, state: Mapping[str, Tensor], gap: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Step by `gap`: (B, width) encoded gaps, of which the first channel is read."""
        short = self.short_term(state["memory"]).tanh()
        kept = torch.sigmoid(self.offset - functional.softplus(self.rate) * gap[:, :1])
        hidden, memory = self.lstm(inputs, (state["hidden"], state["memory"] - short + kept * short))
        return hidden, {"hidden": hidden, "memory": memory}
