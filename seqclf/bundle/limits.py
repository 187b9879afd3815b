"""Limits of how unlike training the rows of a prediction may be."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from seqclf.bundle.predictions import Counts, Predictions, Result
from seqclf.bundle.training_memory import RowSample, TrainingMemory
from seqclf.data.encoding.row_checks import StrangeMeasures
from seqclf.errors import InputError

Part = TypeVar("Part", Result, Predictions)


class LimitError(InputError):
    """Error for rows that exceed a limit of `Limits`. A command exits with code 3."""

    exit_code = 3


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Largest share of rejected rows and of far tokens, and largest distance of a moved field. None: no limit."""

    max_refused: float | None = None
    max_far: float | None = None
    max_moved: float | None = None

    def __bool__(self) -> bool:
        return self != NO_LIMITS

    def check(self, strange: StrangeMeasures, memory: TrainingMemory, unmeasured: Collection[str] = ()) -> None:
        """Raise InputError for a wrong limit. `unmeasured`: names of limits that the engine does not measure."""
        for name, value in vars(self).items():
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name}={value}", "must be from 0 to 1")
        missing = {"max_far": "far" not in strange.names, "max_moved": not memory.fields}
        for name, is_missing in missing.items():
            if getattr(self, name) is not None and (is_missing or name in unmeasured):
                lacks = "the bundle has nothing to compare rows with" if is_missing else "it is not measured here"
                raise InputError(name, lacks, f"remove {name}, or predict with engine=local and without explain")

    def checked(self, parts: Iterator[Part], strange: StrangeMeasures, sample: RowSample) -> Iterator[Part]:
        """Yield all parts, and then raise LimitError if they exceed a limit together."""
        counts, error, known = Counts(), None, strange.far.copy()
        for part in parts:
            counts = counts.plus(part.counts)
            if error is None and part.counts.refused:
                error = next(filter(None, part.errors), None)
            yield part
        remedy = "compare the columns, their types and units with those of training; nothing was written"
        moved = sample.moved() if self else []
        refused, far = counts.refused / max(1, counts.rows), counts.far / max(1, counts.encoded)
        if self.max_refused is not None and refused > self.max_refused:
            problem = f"{refused:.1%} of the rows are rejected ({error})"
            raise LimitError(f"max_refused={self.max_refused}", problem, remedy)
        if self.max_far is not None and far > self.max_far:
            # Other processes measure the rows of an engine.
            names = [name for name, _ in (strange.far - known).most_common(1)] or strange.numbers
            names = [str(next((each for each in moved if each.field == name), name)) for name in names]
            raise LimitError(f"max_far={self.max_far}", f"{far:.1%} of the tokens are far ({', '.join(names)})", remedy)
        if self.max_moved is not None and moved and moved[0].distance > self.max_moved:
            raise LimitError(f"max_moved={self.max_moved}", f"moved since training: {moved[0]}", remedy)


NO_LIMITS = Limits()
