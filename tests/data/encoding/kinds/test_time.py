"""Times become gaps on a log scale that fits their unit, with optional hours and weekdays."""

from datetime import UTC, date, datetime, timedelta, timezone

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.casts import seconds_sql
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field


def encoded(rows, **options):
    encoder = TimeEncoder(Field("when", "time", ("when",), width=1, options=options))
    batch = pa.record_batch({"when": pa.array(rows, pa.list_(pa.float64()))})
    encoder.fit(lambda *names: iter([batch]))
    lengths, arrays = encoder.encode(batch)
    assert lengths.tolist() == [len(row) for row in rows]
    return encoder, arrays["when"].astype(np.float64)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), min_size=1, max_size=6))
def test_gaps_are_scaled_logs_of_the_seconds_since_the_previous_token(rows):
    encoder, gap_values = encoded(rows)
    gaps = [0 if index == 0 else time - row[index - 1] for row in rows for index, time in enumerate(row)]
    logs = np.sign(gaps) * np.log1p(np.abs(gaps) / encoder.resolution)
    np.testing.assert_allclose(gap_values[:, 0], (logs - logs.mean()) / (logs.std() or 1.0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 3e7])
def test_the_scale_fits_the_unit(unit):
    times = np.cumsum(np.random.default_rng(0).lognormal(0, 1, 500))
    np.testing.assert_allclose(encoded([(times * unit).tolist()])[1], encoded([times.tolist()])[1], atol=1e-4)


def test_cycles_repeat_with_the_hour_and_the_weekday():
    moments = [datetime(2024, 1, day, hour, tzinfo=UTC) for day, hour in [(1, 6), (2, 6), (8, 6), (8, 18)]]
    channels = encoded([[moment.timestamp() for moment in moments]], cycles=["hour", "weekday"])[1]
    hours, days = channels[:, 1:3], channels[:, 3:5]
    np.testing.assert_allclose(hours[0], hours[1], atol=1e-5)
    np.testing.assert_allclose(hours[0], -hours[3], atol=1e-5)  # half a day apart
    np.testing.assert_allclose(days[0], days[2], atol=1e-5)
    assert np.abs(days[0] - days[1]).max() > 0.5
    np.testing.assert_allclose(np.hypot(*hours.T), 1, atol=1e-5)


def test_sequences_of_equal_gaps_are_duplicates_to_the_microsecond(options, tmp_path):
    starts = np.random.default_rng(0).uniform(0, 1e8, 40)
    times = [[1.7e9 + start + 0.137001 * token for token in range(5)] for start in starts]
    labels = ["a", "b"] * 20
    path = write(tmp_path / "t.parquet", {"at": times, "label": labels})
    assert prepare(options(train=path, label="label", fields={"at": "time"})).leaks.distinct == 1


def test_the_gap_is_marked_as_scaled_and_cycles_are_not():
    encoder, _ = encoded([[0.0, 60.0]], cycles=["hour", "weekday"])
    assert encoder.spec()["scaled"] == [True, False, False, False, False]


@pytest.mark.parametrize(("unit", "zone"), [("s", None), ("ms", "UTC"), ("us", None), ("ns", "Europe/Berlin")])
@pytest.mark.parametrize("form", ["lists.parquet", "lists.arrow", "events.parquet", "events.arrow"])
def test_every_unit_with_and_without_a_zone_is_read(options, tmp_path, unit, zone, form):
    kind = pa.timestamp(unit, zone)
    seconds = [[100 * row + 7, 100 * row + 7 + row % 5, 100 * row + 60] for row in range(20)]
    moments = [[datetime.fromtimestamp(second, UTC) for second in row] for row in seconds]
    labels, path = ["a", "b"] * 10, tmp_path / form
    if form.startswith("lists"):
        write(path, {"t": pa.array(moments, pa.list_(kind)), "y": pa.array(labels)})
        events = {}
    else:
        flat = pa.array([moment for row in moments for moment in row[::-1]], kind)
        columns = {"t": flat, "y": np.repeat(labels, 3), "row": np.repeat(np.arange(20), 3)}
        write(path, {name: pa.array(column) for name, column in columns.items()})
        events = {"group_by": "row", "order_by": "t"}
    dataset = prepare(options(train=path, label="y", fields={"t": "time"}, split={"seed": 1}, **events))
    encoder = dataset.encoders["t"]
    gaps = set()
    for split in dataset.splits.values():
        all_gaps = encoder.gaps_of({"t": np.asarray(split.sequences.fields["t"])})
        gaps |= {tuple(row) for row in np.split(np.round(all_gaps, 3), split.sequences.offsets[1:-1])}
    assert gaps == {(0.0, float(row % 5), 53.0 - row % 5) for row in range(20)}


@pytest.mark.parametrize("unit", ["second", "millisecond", "day"])
def test_texts_mean_the_same_in_python_as_in_tables(unit):
    texts = [
        *["12", "-1.5e3", " 7 ", "1_000", "inf", "abc", "", "2020-01-02", "2020/1/2", "2020-13-01", "2020-01-02T03:04"],
        *["2020-01-02 03:04:05.25", "2020-01-02T03:04:05Z", "2020-01-02 03:04:05+02", "2020-01-02T03:04:05-05:30"],
        *["2020-01-02T03:04:05+0130", "2020-01-02 25:00:00", "2020-01-02 03:04:61", "2020-01-02 03:04 PM", "47:30"],
        *["1:70", "1:02:03.5", "-1:02:03", "2 days", "-1 day", "1 day 01:00:00", "Nov 20", "11/20/2023", "03:04:05Z"],
    ]
    with duckdb.connect() as connection:
        table = pa.table({"t": texts})
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("texts", table)
        expected = [row[0] for row in connection.execute(f"SELECT {seconds_sql('t', unit)} FROM texts").fetchall()]
    encoder = TimeEncoder(Field("when", "time", ("when",), width=1, options={"unit": unit}))
    for text, seconds in zip(texts, expected, strict=True):
        try:
            found = encoder.element_from_python(text)
        except ValueError:
            found = None
        assert found == pytest.approx(seconds, abs=1e-6), text


def test_times_of_python_and_numpy_are_seconds_of_utc():
    encoder = TimeEncoder(Field("when", "time", ("when",), width=1))
    moment = datetime(2020, 1, 2, tzinfo=UTC)
    rows = [
        [moment],
        [datetime(2020, 1, 2)],
        [date(2020, 1, 2)],
        ["2020-01-02T00:00:00Z"],
        [np.datetime64("2020-01-02", "ns")],
    ]
    assert [encoder.from_python(row) for row in rows] == [[moment.timestamp()]] * 5
    assert encoder.from_python(np.array(["2020-01-02"], "datetime64[ns]")) == [moment.timestamp()]
    assert encoder.parse('["2020-01-02T00:00:00Z"]') == ["2020-01-02T00:00:00Z"]


NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
CLOCKS = {
    "zoned": [NOON, NOON.astimezone(timezone(timedelta(hours=2))), "2024-07-01T12:00:00Z", "2024-07-01 14:00+02"],
    "local": [NOON.replace(tzinfo=None), date(2024, 7, 1), "2024-07-01T12:00:00", "2024-07-01", np.datetime64(1, "us")],
    "any": [1719835200, "1719835200.0", "47:30"],
}


@pytest.mark.parametrize("trained", CLOCKS)
@pytest.mark.parametrize("given", CLOCKS)
def test_times_of_another_clock_are_rejected_row_by_row(trained, given):
    encoder = TimeEncoder(Field("at", "time", ("at",), width=1, options={"clock": trained}))
    is_other = {trained, given} == {"zoned", "local"}
    for time in CLOCKS[given]:
        cells = pa.array([encoder.from_python([0.0, time]), encoder.from_python([0.0, 1.0])], encoder.canonical_type)
        problems = Problems(2)
        encoder.check(pa.record_batch({"at": cells}), problems)
        assert problems.usable.tolist() == [not is_other, True]
        assert not is_other or "data.query" in problems.first_problems[0].reason
        assert not is_other or encoder.encode_plain([[0.0, time]]) is None


@pytest.mark.parametrize("form", ["events", "lists", "format"])
@pytest.mark.parametrize("file", ["t.csv", "t.jsonl", "t.parquet", "t.arrow"])
@pytest.mark.parametrize("zoned", [False, True])
def test_training_says_which_clock_is_read(options, tmp_path, form, file, zoned):
    """The last sequence has another clock than the others, in files of texts and of times."""
    end = "Z" if zoned else ""
    times = [[f"2024-03-{1 + row} 0{hour}:00:00{end}" for hour in range(3)] for row in range(20)]
    odd = [[time.removesuffix("Z") + ("" if zoned else "Z") for time in times[-1]]]
    rows = {"at": times[:-1] + odd, "y": ["a", "b"] * 10}
    field = {"kind": "time", "cycles": ["hour"]}
    if form == "format":
        field |= {"format": f"%Y-%m-%d %H:%M:%S{'%z' if zoned else ''}"}
    if form != "lists":
        flat = [time for row in rows["at"] for time in row]
        rows = {"at": flat, "y": list("aaabbb") * 10, "k": [row // 3 for row in range(60)]}
    keys = {} if form == "lists" else {"group_by": "k", "order_by": "at"}
    keys |= {"order_format": "text"} if form == "format" else {}
    dataset = prepare(options(train=write(tmp_path / file, rows), label="y", fields={"at": field}, **keys))
    assert dataset.report["train"].refused == 1
    assert dataset.schema.fields[0].options["clock"] == ("zoned" if zoned else "local")
    encoder = dataset.encoders["at"]
    for kind in ("TIMESTAMP", "TIMESTAMPTZ"):
        name = kind.replace("TZ", " WITH TIME ZONE")
        with duckdb.connect() as connection:
            sql = f"SELECT {encoder.value_sql('t', name)} FROM (SELECT {kind} '2024-07-01 12:00:00' AS t)"
            ((seconds,),) = connection.execute(f"SET TimeZone = 'UTC'; {sql}").fetchall()
        assert seconds == (NOON.timestamp() if ("TZ" in kind) is zoned else -np.inf)
