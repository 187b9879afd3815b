"""Points on the globe."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from seqclf.extend import (
    EncodedField,
    EncoderState,
    NumberColumn,
    NumberSpec,
    Problems,
    ReadColumns,
    Where,
    choice_option,
    list_lengths,
    require,
    text_option,
    vector_values,
)


class PointEncoder(NumberColumn):
    """Latitude and longitude in degrees → a point on a sphere, which knows neither poles nor a date line.

    With `origin: mean`, points are relative to the mean point of training.
    """

    options = {"origin": choice_option("earth", "earth", "mean"), "separator": text_option()}
    center = np.zeros(3)

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        super().check_elements(elements, row_of_token, problems)  # two numbers, finite
        usable = problems.usable[row_of_token]
        degrees = np.array(elements.filter(pa.array(usable)).to_pylist()).reshape(-1, 2)
        outside = np.flatnonzero(usable)[(np.abs(degrees) > [90, 360]).any(axis=1)]
        problems.mark_tokens(
            outside, row_of_token, self.field.column, "has a latitude beyond 90 or longitude beyond 360"
        )

    def token_keys(self, column: pa.Array) -> np.ndarray:
        return vector_values(column, 2).view(np.uint64)  # equal points are equal tokens, to find duplicate rows

    def fit(self, read: ReadColumns) -> None:
        if self.option("origin") == "mean":
            batches = [self._points(record_batch.column(self.field.name)) for record_batch in read(self.field.name)]
            self.center = np.concatenate(batches).mean(axis=0)

    def _points(self, column: pa.Array) -> np.ndarray:
        latitude, longitude = np.radians(vector_values(column, 2)).T
        flat = np.cos(latitude)
        return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        points = self._points(column) - self.center
        return EncodedField(list_lengths(column), {self.field.name: points.astype(np.float32)})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        points = fields[self.field.name] + self.center
        latitude, longitude = np.degrees([np.arcsin(points[:, 2].clip(-1, 1)), np.arctan2(points[:, 1], points[:, 0])])
        return [f"{north:.2f}°, {east:.2f}°" for north, east in zip(latitude, longitude, strict=True)]

    def spec(self) -> NumberSpec:
        return {"name": self.field.name, "kind": "number", "width": 3, "scaled": [False] * 3}

    def state(self) -> EncoderState:
        return {"center": self.center.tolist()}

    def restore(self, state: EncoderState) -> None:
        require(state, {"center": Where([float], lambda center: len(center) == 3, "three numbers")})
        self.center = np.array(state["center"])
