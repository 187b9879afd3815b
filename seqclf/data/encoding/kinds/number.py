"""Number fields: each token has scaled channels, and optionally a mask and the time since the last known value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.field_encoder import EncodedField, EncoderState, ReadColumns
from seqclf.data.encoding.number_column import NumberColumn
from seqclf.data.encoding.scales import MAX_DEVIATIONS, Scales, fit_scales, fit_within, stored_array
from seqclf.data.encoding.sequence_scale import ScaledSequences, fit_levels, scale_sequences, stored_levels, unit_levels
from seqclf.data.field_spec import NumberSpec
from seqclf.data.ragged import elapsed_since_seen, fill_forward, list_lengths, list_values, vector_values
from seqclf.data.schema.schema import Option, choice_option, flag_option, numbers_option, positive_option, text_option
from seqclf.documents.formatting import plain_number
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.system.state_validation import require

ROUNDING = 1e-6  # fraction of the mean; a smaller decoded value is a rounding error of float32 around 0
LARGEST = 1e30  # maximum absolute scaled value; larger values overflow float32 inside the model
DECODED_CHANNELS = 3  # number of channels of a vector that are printed; more channels do not fit into a line
FAR_VALUES = (
    f"a value is more than {MAX_DEVIATIONS:,.0f} deviations from the others, which all become nearly equal; set "
    "missing_values if it means a missing value, or scale: robust and clip"
)
KEY_DIGITS = np.uint64(2**64 - 2**20)  # bit mask that keeps 32 of the 52 mantissa bits of a float64, about ten digits
HALF_DIGIT = np.uint64(2**19)  # added before masking, so that numbers are rounded and not truncated


class RawChannels(NamedTuple):
    """Unscaled channels of N rows with S tokens.

    `lengths`: (N,). `seen`: (S, W) mask, True where a value is present. `values`: (S, W), NaN where missing; with the
    option `since` (S, 2 W), where the second half holds elapsed times.
    """

    lengths: np.ndarray
    seen: np.ndarray
    values: np.ndarray


class NumberEncoder(NumberColumn):
    """Encodes numbers as float channels, in this order: values, masks, elapsed times, log-deviations, log-means.

    - `scale`: `standard` scales to mean 0 and standard deviation 1, `robust` by the median and the quartiles of a
      sample of the tokens, `none` not at all. `sequence` scales each sequence by its own mean and standard deviation,
      for signals whose amplitude or offset differs much; two more channels per number then hold the logarithms of both
      (see `SequenceLevels`), so that the model still gets the level of the sequence.
    - `log`: if True, each number x is replaced by sign(x) · log(1 + |x|) before scaling.
    - `clip`: maximum absolute scaled value; values beyond it are clipped.
    - `missing`: a missing value is replaced by the mean (`mean`), the last known value of the sequence (`last`, or the
      mean before the first one) or 0 (`zero`).
    - `missing_values`: numbers that stand for a missing value in every channel, such as -999. The option needs
      `missing`.
    - `mask`: if True, each number has a second channel, which is 1 where the value is present.
    - `since`: adds a channel with the logarithm of the time since the last known value, in tokens, or in seconds of a
      time field (Che et al. 2018, "Recurrent Neural Networks for Multivariate Time Series with Missing Values").

    >>> from seqclf.data.schema.schema import Field
    >>> scaler = NumberEncoder(Field("x", "number", ("x",), width=1, options={"missing": "last"}))
    >>> train = pa.record_batch({"x": pa.array([[1.0, None, 3.0]])})
    >>> scaler.fit(lambda *names: iter([train]))
    >>> scaler.encode(train).arrays["x"].tolist()  # scaled value, mask
    [[-1.0, 1.0], [-1.0, 0.0], [1.0, 1.0]]
    """

    options: ClassVar[Mapping[str, Option]] = {
        "scale": choice_option("standard", "standard", "robust", "sequence", "none"),
        "log": flag_option(False),
        "clip": positive_option(),
        "missing": choice_option("refuse", "refuse", "mean", "last", "zero"),
        "missing_values": numbers_option(),
        "mask": flag_option(True),
        "since": text_option(),
        "separator": text_option(),
    }
    static_options = options.keys() - {"since", "separator"}
    form = "chart"

    def set_up(self) -> None:
        self.scale: str = self.option("scale")
        self.missing: str = self.option("missing")
        self.since: str | None = self.option("since")
        self.channels = self.width * (2 if self.since else 1)  # number of scaled channels, without masks
        self.scales = Scales(np.zeros((1, self.channels)), np.ones((1, self.channels)))
        self.looks_ahead = self.scale == "sequence"
        self.levels = unit_levels(self.width) if self.looks_ahead else None
        self.within = np.ones(self.channels)

    def check_references(self, kinds: Mapping[str, str]) -> None:
        key = self.field.key
        if self.field.static and (self.scale == "sequence" or self.missing == "last"):
            option = "scale=sequence" if self.scale == "sequence" else "missing=last"
            raise InputError(f"{key}.{option}", "is about several values of a sequence", "a static field has one")
        if self.since not in (None, "tokens") and kinds.get(str(self.since)) != "time":
            raise InputError(f"{key}.since={self.since}", "must be tokens or the name of a time field")
        if self.since and self.missing == "refuse":
            raise InputError(f"{key}.since", "needs missing=last, mean or zero")
        if self.missing_values and self.missing == "refuse":
            raise InputError(f"{key}.missing_values", "needs missing=last, mean or zero")

    @property
    def encodes_token_by_token(self) -> bool:  # type: ignore[override]
        return self.scale != "sequence" and self.missing != "last" and not self.since

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return (S, W) keys of numbers. Two numbers have equal keys if they agree in ten digits.

        The model gets seven digits (float32); three more distinguish small differences around a large offset, such as
        times since 1970. Later digits change with the order of a sum or with a file of 15 digits. With `scale: none`,
        the model gets the number as float32, and so does the key.
        """
        values = np.ascontiguousarray(vector_values(column, self.width), np.float64) + 0.0  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan  # NaN has many bit patterns, and keys need a single one
        if self.scale == "none" and not self.option("log"):
            values = values.astype(np.float32).astype(np.float64)
        return (values.view(np.uint64) + HALF_DIGIT) & KEY_DIGITS

    def fit(self, read: ReadColumns) -> None:
        if self.scale == "none":
            return
        values = (channels.values for channels in self._read_channels(read))
        self.scales, is_far = fit_scales(values, self.channels, robust=self.scale == "robust")
        if is_far.any():
            show_note(f"field {self.field.name}: {FAR_VALUES}")
        if self.levels is not None:
            self.levels = fit_levels(map(self._scaled_sequences, self._read_channels(read)), self.width)
        else:
            scaled = ((self._scaled_channels(raw.values), raw.lengths) for raw in self._read_channels(read))
            self.within = fit_within(scaled, self.channels)

    def _read_channels(self, read: ReadColumns) -> Iterator[RawChannels]:
        others = [] if self.since in (None, "tokens") else [self.since]
        return map(self._raw_channels, read(self.field.name, *others))

    def _scaled_sequences(self, channels: RawChannels) -> ScaledSequences:
        return scale_sequences(channels.values[:, : self.width], channels.seen, channels.lengths)

    def _scaled_channels(self, raw: np.ndarray) -> np.ndarray:
        scaled = _scaled(raw, self.scales.mean, self.scales.deviation)
        if self.option("clip") is not None:
            scaled[:, : self.width] = self._clipped(scaled[:, : self.width])
        return scaled

    def _raw_channels(self, record_batch: pa.RecordBatch) -> RawChannels:
        column = record_batch.column(self.field.name)
        clock = None if self.since in (None, "tokens") else list_values(record_batch.column(self.since))
        return self._channels_of(list_lengths(column), vector_values(column, self.width), clock)

    def _channels_of(self, lengths: np.ndarray, values: np.ndarray, clock: np.ndarray | None) -> RawChannels:
        """`clock`: (S,) time of each token, None to count tokens."""
        if self.option("log"):
            values = np.sign(values) * np.log1p(np.abs(values))
        seen = ~np.isnan(values) if self.missing != "refuse" else np.ones(values.shape, bool)
        if self.since is None:
            return RawChannels(lengths, seen, values)
        # With `since: tokens`, positions among the tokens of all rows are enough, because only differences count.
        clock = np.arange(len(values), dtype=np.float64) if clock is None else clock
        elapsed = np.maximum(0.0, elapsed_since_seen(seen, lengths, clock))  # times may decrease
        return RawChannels(lengths, seen, np.concatenate([values, np.log1p(elapsed)], axis=1))

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        return self._encoded(self._raw_channels(record_batch))

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        is_simple = self.since in (None, "tokens") and not self.missing_values
        numbers = (float, int)
        found = self.plain_elements(cells, numbers if self.width == 1 else (list, tuple)) if is_simple else None
        if found is None:
            return None
        lengths, elements = found
        if self.width > 1:
            sizes, elements = {*map(len, elements)}, list(chain.from_iterable(elements))
            if sizes != {self.width} or not {*map(type, elements)} <= {*numbers}:
                return None
        try:
            values = np.array(elements, np.float64).reshape(-1, self.width)
        except OverflowError:
            return None
        is_exact = (np.abs(values) < 2**53).all()  # integers; False for NaN and infinity too
        return self._encoded(self._channels_of(lengths, values, None)) if is_exact else None

    def _encoded(self, channels: RawChannels) -> EncodedField:
        lengths, seen, raw = channels
        mean, deviation = self.scales.mean, self.scales.deviation
        scaled = self._scaled_channels(raw)
        values, elapsed = scaled[:, : self.width], scaled[:, self.width :]
        sequences = None
        if self.levels is not None:
            sequences = self._scaled_sequences(channels)
            values = self._clipped(sequences.values)
        if self.missing == "last":
            values = fill_forward(values, seen, lengths)
        if self.missing == "zero":
            zeros = (-mean / deviation)[:, : self.width] if sequences is None else sequences.zeros()
            values = np.where(np.isnan(values), self._clipped(zeros), values)
        elif self.missing != "refuse":
            values = np.where(np.isnan(values), 0.0, values)  # 0 is the mean of scaled values
        parts = [values]
        if self._has_mask:
            parts.append(seen)
        if self.since is not None:
            parts.append(elapsed)
        if self.levels is not None and sequences is not None:
            features = self.levels.features(sequences.mean, sequences.deviation)
            features = np.clip(features, -LARGEST, LARGEST).astype(np.float32)
            parts.append(np.repeat(features, sequences.lengths, axis=0))
        return EncodedField(lengths, {self.field.name: np.concatenate(parts, axis=1, dtype=np.float32)})

    def _clipped(self, scaled: np.ndarray) -> np.ndarray:
        limit = self.option("clip")
        return scaled if limit is None else np.clip(scaled, -limit, limit)

    @property
    def _has_mask(self) -> bool:
        return self.missing != "refuse" and self.option("mask")

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """Return the original values of each token as one text. A number in parentheses replaces a missing value."""
        more = " …" if self.width > DECODED_CHANNELS else ""
        texts, is_missing = self._texts(fields), np.isnan(self.original_values(fields))
        cells = np.where(is_missing, "(" + texts + ")", texts)
        return [" ".join(token) + more for token in cells[:, :DECODED_CHANNELS].tolist()]

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """Return one column of texts per channel. If the field has a mask, a missing value has an empty text."""
        tokens = {name: values[shown] for name, values in fields.items()}
        texts, is_missing = self._texts(tokens), np.isnan(self.original_values(tokens))
        cells = np.where(is_missing, "", texts)
        names = self.channel_names() if self.width > 1 else [self.field.name]
        return {name: cells[:, channel].tolist() for channel, name in enumerate(names)}

    def _texts(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return (T, W) original values as texts, replaced ones where missing, and with ≤ or ≥ where clipped."""
        scaled, values = fields[self.field.name][:, : self.width], self._unscaled(fields)
        limit = np.float32(self.option("clip") or np.inf)
        signs = np.select([scaled <= -limit, scaled >= limit], ["≤", "≥"], "")
        pairs = zip(signs.ravel().tolist(), values.ravel().tolist(), strict=True)
        return np.array([sign + plain_number(value) for sign, value in pairs], object).reshape(values.shape)

    def original_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the (T, W) float64 numbers of the tokens in the units of the data, NaN where the mask says missing."""
        values = self._unscaled(fields)
        masks = fields[self.field.name][:, self.width : 2 * self.width]
        return np.where(masks > 0, values, np.nan) if self._has_mask else values

    def _unscaled(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the (T, W) float64 original values, those that replaced missing ones included."""
        values = self._unscaled_logs(fields)
        return np.sign(values) * np.expm1(np.abs(values)) if self.option("log") else values

    def _unscaled_logs(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the (T, W) float64 values before scaling, and after the option `log`."""
        encoded = fields[self.field.name]
        if self.levels is not None:
            mean, deviation = self.levels.inverse(np.asarray(encoded[:, -2 * self.width :], np.float64))
        else:
            mean, deviation = self.scales.mean[:, : self.width], self.scales.deviation[:, : self.width]
        values = encoded[:, : self.width] * deviation + mean
        # Scaling and unscaling in float32 turns a 0 into a tiny number such as 1e-8.
        return np.where(np.abs(values) < ROUNDING * np.abs(mean), 0.0, values)

    def shared_scale(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if self.levels is None:
            return None
        mean, deviation = self.scales.mean[:, : self.width], self.scales.deviation[:, : self.width]
        values = _scaled(self._unscaled_logs(fields), mean, deviation)
        # The log-deviations and log-means are left out, because these values have the level of their sequence.
        others = fields[self.field.name][:, self.width : -2 * self.width]
        return np.concatenate([values, others], axis=1, dtype=np.float32)

    def neutral(self, tokens: np.ndarray) -> np.ndarray:
        """Return tokens with the mean as every value, all marked as missing. Times and levels remain unchanged."""
        known = self.width * (2 if self._has_mask else 1)
        tokens = tokens.copy()
        tokens[:, :known] = 0.0
        return tokens

    def spec(self) -> NumberSpec:
        scaled = self.scale != "none"
        channels = [scaled] * self.width + [False] * self.width * bool(self._has_mask)
        channels += [scaled] * self.width * (self.since is not None)
        if self.levels is not None:
            # Scaled channels get noise in training, without which a model could memorize sequences by the digits of
            # their levels. It differs between tokens, so it averages out over a sequence.
            channels += [True] * 2 * self.width
        spec: NumberSpec = {"name": self.field.name, "kind": "number", "width": len(channels), "scaled": channels}
        if self._has_mask:
            spec["masked"] = self.width
        if self.levels is not None:
            spec["constant"] = [False] * (len(channels) - 2 * self.width) + [True] * 2 * self.width
        if (self.within < 1).any():
            values, elapsed = self.within[: self.width].tolist(), self.within[self.width :].tolist()
            spec["within"] = values + [1.0] * self.width * bool(self._has_mask) + elapsed
        return spec

    def state(self) -> EncoderState:
        state: EncoderState = {"mean": self.scales.mean.tolist(), "deviation": self.scales.deviation.tolist()}
        if self.levels is not None:
            state["levels"] = self.levels.state()
        if (self.within < 1).any():
            state["within"] = self.within.tolist()
        return state

    def restore(self, state: EncoderState) -> None:
        shape = (1, self.channels)
        mean, deviation = stored_array(state, "mean", shape), stored_array(state, "deviation", shape, positive=True)
        self.scales = Scales(mean, deviation)
        if self.levels is not None:
            require(state, {"levels": dict})
            self.levels = stored_levels(state["levels"], self.width)
        elif "within" in state:
            self.within = np.minimum(1.0, stored_array(state, "within", (self.channels,), positive=True))


def _scaled(raw: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.clip((raw - mean) / deviation, -LARGEST, LARGEST)
