"""The model `step.onnx` of a bundle reads one chunk of tokens. The state of the model summarizes all earlier tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from seqclf.bundle.session import check_model, empty_outputs, open_session
from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.errors import InputError
from seqclf.system.state_validation import SIZE, Where, error_context

STEP = "step.onnx"
STATE_INPUT, STATE_OUTPUT = "state/", "next/"  # prefixes of the states' input and output names in the ONNX graph
HALTED = "halted"  # output name of a model that may stop early
# Entry of a state in the manifest. The shape has no batch axis. `initial` is the value before the first token.
FLOAT32 = Where(float, lambda value: abs(value) <= float(np.finfo(np.float32).max), "a number of float32")
STATE = {"name": str, "shape": [SIZE], "initial": FLOAT32}


class Chunk(NamedTuple):
    """Result of `step.onnx` for one chunk of tokens from each of B rows.

    `logits`: (B, C) after the last token that was read. `extra`: dict name of another output → (B,) or (B, D).
    `halted`: (B,) True if the outputs are final. `states`: of the model (B, …) after the chunk.
    """

    logits: np.ndarray
    extra: dict[str, np.ndarray]
    halted: np.ndarray
    states: list[np.ndarray]


class StepModel:
    """A session of `step.onnx`. The model's states are both inputs and outputs.

    `specs`: encoded form of each field. `states`: entry of each state in the manifest (see `STATE`). `outputs`:
    names of the outputs beside the logits, `HALTED` among them if the model may stop early. Raises InputError if the
    ONNX graph does not have the expected inputs and outputs.
    """

    def __init__(
        self,
        session: Any,
        states: Sequence[Mapping[str, Any]],
        specs: Sequence[FieldSpec],
        classes: int,
        outputs: Sequence[str] = (),
    ):
        self.session = session
        self.states = states
        self.fields = [spec["name"] for spec in specs]
        self.static = {spec["name"] for spec in static_specs(specs)}
        numbers = {STATE_INPUT + state["name"]: [None, *state["shape"]] for state in states}
        check_model(session, specs, classes, numbers)
        self.extra = empty_outputs(session, outputs)
        self.outputs = ["logits", *outputs, *(STATE_OUTPUT + state["name"] for state in states)]
        if missing := set(self.outputs) - {entry.name for entry in session.get_outputs()}:
            raise InputError(None, f"does not return {', '.join(sorted(missing))}")

    def start(self, rows: int) -> list[np.ndarray]:
        """Return the initial states (before the first token) for `rows` rows."""
        return [np.full((rows, *state["shape"]), state["initial"], np.float32) for state in self.states]

    def run(self, fields: Mapping[str, np.ndarray], lengths: np.ndarray, states: Sequence[np.ndarray]) -> Chunk:
        """Run the model on one chunk of each row, padded (see `pad`). `lengths`: (B,) number of tokens, at least 1."""
        inputs = {name: fields[name] for name in self.fields}
        named = {STATE_INPUT + state["name"]: values for state, values in zip(self.states, states, strict=True)}
        logits, *others = self.session.run(self.outputs, {**inputs, "lengths": lengths, **named})
        extra = dict(zip(self.extra, others, strict=False))
        halted = extra.pop(HALTED, np.zeros(len(lengths), bool))
        return Chunk(logits, extra, halted, others[len(self.extra) :])


def open_step(
    folder: Path,
    manifest: Mapping[str, Any],
    specs: Sequence[FieldSpec],
    *,
    device: str = "auto",
    content: bytes | None = None,
) -> StepModel:
    """Open `step.onnx` of a bundle. See `StepModel` and `open_session` for the arguments."""
    session = open_session(folder / STEP, device, content=content)
    with error_context(f"bundle={folder}: {STEP}", "export the bundle anew"):
        step, classes = manifest["step"], len(manifest["classes"])
        return StepModel(session, step["states"], specs, classes, step["outputs"])


class Read(NamedTuple):
    """Results for N sequences. `logits`: (N, C). `extra`: dict name of another output → (N,) or (N, D)."""

    logits: np.ndarray
    extra: Mapping[str, np.ndarray] = MappingProxyType({})


def read_chunks(model: StepModel, fields: Mapping[str, np.ndarray], lengths: np.ndarray, chunk: int | None) -> Read:
    """Run the model on padded sequences, in chunks of `chunk` tokens, until each sequence halts or ends.

    None: return the results after each of their S tokens, end to end; a sequence that halts keeps its last ones.
    """
    rows, states, start = np.arange(len(lengths)), model.start(len(lengths)), 0
    ends, each, chunk = np.cumsum(lengths), chunk is None, chunk or 1
    last = np.zeros(ends[-1], np.int64)  # place of the last result, for each token
    found: dict[str, np.ndarray] = {}
    while len(rows):
        part = {
            name: values[rows] if name in model.static else values[rows, start : start + chunk]
            for name, values in fields.items()
        }
        result = model.run(part, np.minimum(lengths[rows] - start, chunk), states)
        places = (ends - lengths)[rows] + start if each else rows
        last[places] = places
        for name, values in {"logits": result.logits, **result.extra}.items():
            size = len(last) if each else len(lengths)
            found.setdefault(name, np.empty((size, *values.shape[1:]), values.dtype))[places] = values
        left = ~result.halted & (lengths[rows] > start + chunk)
        rows, states = rows[left], [values[left] for values in result.states]
        start += chunk
    if each:
        found = {name: values[np.maximum.accumulate(last)] for name, values in found.items()}
    return Read(found.pop("logits"), found)
