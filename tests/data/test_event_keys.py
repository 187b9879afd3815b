"""A forgotten key of an event table stops the run before training, and a table of sequences never does."""

import numpy as np
import pyarrow as pa
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError

HOLDERS, EVENTS = 300, 10
ROWS = HOLDERS * EVENTS
SECONDS = np.tile(np.arange(EVENTS) * 3600, HOLDERS) + np.repeat(np.arange(HOLDERS) * 60, EVENTS)
START = np.datetime64("2024-01-01", "s")
TIMES = {
    "text": np.char.replace((START + SECONDS).astype(str), "T", " ").tolist(),
    "timestamp": pa.array(START + SECONDS),
    "seconds": (START.astype(int) + SECONDS).tolist(),
    "milliseconds": (1000 * (START.astype(int) + SECONDS)).tolist(),
}


def events(times="text", **columns):
    """Rows of 300 holders with ten events each, in the order of time within each holder."""
    generator = np.random.default_rng(0)
    holders = np.repeat(np.arange(HOLDERS), EVENTS)
    return {
        "holder": [f"h{holder:03d}" for holder in holders],
        "ts": TIMES[times],
        "amount": generator.gamma(2, 10, ROWS).round(2).tolist(),
        "kind": generator.choice(["card", "online shop", "atm"], ROWS).tolist(),
        "label": np.where(holders % 3, "good", "bad").tolist(),
        **columns,
    }


def shuffled(columns):
    table = pa.table(columns)
    return table.take(np.random.default_rng(1).permutation(len(table)))


def as_file(folder, kind, table):
    return write(
        folder / f"t.{kind}",
        table.to_pydict() if kind == "csv" else dict(zip(table.column_names, table.columns, strict=True)),
    )


CASES = [("csv", "text"), ("csv", "seconds"), ("parquet", "timestamp"), ("parquet", "milliseconds")]


@pytest.mark.parametrize(("kind", "times"), CASES)
@pytest.mark.parametrize("order", [pa.table, shuffled])
def test_events_without_their_keys_are_refused(options, tmp_path, kind, times, order):
    path = as_file(tmp_path, kind, order(events(times)))
    with pytest.raises(InputError) as caught:
        prepare(options(train=path, label="label"))
    assert "data.group_by=holder data.order_by=ts data.label=label" in caught.value.remedy
    assert "data.rows=sequences" in caught.value.remedy and "300" in caught.value.problem
    dataset = prepare(options(train=path, label="label", group_by="holder", order_by="ts"))
    assert sum(len(split.sequences) for split in dataset.splits.values()) == HOLDERS


def test_times_of_another_notation_are_times(options, tmp_path):
    moments = (START + SECONDS).tolist()
    texts = [moment.strftime("%d/%b/%Y:%H:%M:%S +0100") for moment in moments]
    path = as_file(tmp_path, "csv", shuffled(events(ts=texts)))
    with pytest.raises(InputError, match=r"data\.group_by=holder data\.order_by=ts"):
        prepare(options(train=path, label="label"))
    with pytest.raises(InputError, match=r"data\.order_by=ts data\.order_format="):
        prepare(options(train=path, label="label", group_by="holder"))
    prepare(options(train=path, label="label", group_by="holder", rows="events"))


def test_durations_and_clock_times_are_no_order(options, tmp_path):
    elapsed = [f"{minute % 60:02}:{minute * 7 % 60:02}" for minute in range(ROWS)]
    columns = {**events(), "elapsed": elapsed}
    columns.pop("ts")
    prepare(options(train=as_file(tmp_path, "csv", shuffled(columns)), label="label", group_by="holder"))


def test_rows_that_are_meant_as_sequences_are_read(options, tmp_path):
    path = as_file(tmp_path, "csv", pa.table(events()))
    dataset = prepare(options(train=path, label="label", rows="sequences"))
    assert sum(len(split.sequences) for split in dataset.splits.values()) == ROWS


def test_events_whose_labels_are_in_another_file_are_refused(options, tmp_path):
    columns = events(kind=[f"request {row} served" for row in range(ROWS)])
    labels = {"holder": columns["holder"][::EVENTS], "label": columns.pop("label")[::EVENTS]}
    files = {"train": write(tmp_path / "t.csv", columns), "labels": write(tmp_path / "labels.csv", labels)}
    with pytest.raises(InputError) as caught:
        prepare(options(**files, label="label", id="holder"))
    assert "data.group_by=holder data.order_by=ts" in caught.value.remedy


def sentences(count=ROWS):
    return [f"sentence number {row} of many" for row in range(count)]


SEQUENCES = {
    "an id that does not repeat": {"holder": [f"h{row}" for row in range(ROWS)], "note": sentences()},
    "lists and a group that repeats": {"x": [[1, 2]] * ROWS},
    "sentences of users": {"kind": sentences()},
    "sentences with a label of their own": {"kind": sentences(), "label": ["good", "bad"] * (ROWS // 2)},
    "two rows of each id": {"holder": [f"h{row // 2}" for row in range(ROWS)], "note": sentences()},
    "copies of rows": {"ts": np.repeat(np.array(TIMES["text"])[:HOLDERS], EVENTS).tolist(), "fields": {"kind": "text"}},
}


@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_are_not_taken_for_events(options, tmp_path, case):
    columns = events("text", **SEQUENCES[case])
    fields = columns.pop("fields", None)
    dataset = prepare(
        options(train=write(tmp_path / "t.parquet", columns), label="label", fields=fields, group="holder")
    )
    assert sum(split.used for split in dataset.report.values()) == ROWS


@pytest.mark.parametrize(
    "columns",
    [
        {"label": (["good", "bad", "bad"] * ROWS)[:ROWS]},  # the label varies within a holder
        {"holder": [f"h{row // 2}" for row in range(ROWS)]},  # two events of each holder
        {"ts": np.repeat(np.array(TIMES["text"])[:HOLDERS], EVENTS).tolist()},  # ten copies of one event
        {"holder": [f"h{row % 3}" for row in range(ROWS)]},  # few holders, one for each label
    ],
)
def test_a_column_of_times_is_not_read_as_text(options, tmp_path, columns):
    path = write(tmp_path / "t.csv", events(**{"kind": ["card"] * ROWS, **columns}))
    with pytest.raises(InputError, match="cannot tell which columns hold the tokens"):
        prepare(options(train=path, label="label"))


@pytest.mark.parametrize(("kind", "times"), CASES)
def test_shuffled_events_need_an_order(options, tmp_path, kind, times):
    grouped = {"label": "label", "group_by": "holder"}
    table = shuffled(events(times))
    path = as_file(tmp_path, kind, table)
    with pytest.raises(InputError) as caught:
        prepare(options(train=path, **grouped))
    last, earlier = {}, 0
    for holder, time in zip(*(table.column(name).to_pylist() for name in ("holder", "ts")), strict=True):
        earlier += holder in last and time < last[holder]
        last[holder] = time
    assert f"{earlier:,} events" in caught.value.problem
    assert "data.order_by=ts" in caught.value.remedy and "data.rows=events" in caught.value.remedy
    for settings in ({"order_by": "ts"}, {"rows": "events"}):
        assert prepare(options(train=path, **grouped, **settings)).report["train"].events


@pytest.mark.parametrize("times", TIMES)
def test_events_in_the_order_of_one_time_need_no_word(options, tmp_path, times):
    since = [str(START - row % 7) for row in range(ROWS)]  # another time, in another order
    columns = events(times, since=since)
    order = np.argsort(SECONDS, kind="stable")  # the events of all holders by time
    path = as_file(tmp_path, "parquet", pa.table(columns).take(order))
    assert prepare(options(train=path, label="label", group_by="holder")).schema.order_by == ()
