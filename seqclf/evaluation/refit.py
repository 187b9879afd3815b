"""Record of the second training of a run, on train and validation together."""

from __future__ import annotations

from dataclasses import dataclass

from seqclf.system.json_result import JsonResult


@dataclass(frozen=True, kw_only=True)
class Refit(JsonResult):
    """Second training of a run, on the rows of train and validation. Its model is judged on test and exported.

    `rows`: number of training rows. `epochs`: number of passes over them, as many as the chosen model had.
    `steps`: number of optimizer steps. `chosen_step`: optimizer step of the first training whose model was chosen by
    validation. `seconds`: time of the second training.
    """

    rows: int
    epochs: float
    steps: int
    chosen_step: int
    seconds: float
