"""Whole numbers are read as codes or as quantities, whichever tells the labels of rows that were left out."""

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.quantities import decide

LENGTH = 10


def coordinates(rng, label):
    """A walk of pixels, of which a few are a code for missing."""
    walk = rng.normal(900, 150, (len(label), 1)) + rng.normal(0, 25, (len(label), LENGTH)).cumsum(1)
    return np.where(rng.random(walk.shape) < 0.02, 9999, walk.round().clip(0, 1900))


def counts(rng, label):
    return rng.negative_binomial(2, 0.08 / (1 + 0.7 * label[:, None]), (len(label), LENGTH))


def ages(rng, label):
    return rng.normal(40 + 6 * label[:, None], 14, (len(label), LENGTH)).round().clip(18, 90)


def minutes(rng, label):
    at_night = rng.random((len(label), LENGTH)) < 0.1 + 0.25 * label[:, None]
    days = rng.normal(840, 180, at_night.shape).round().clip(0, 1439)
    return np.where(at_night, rng.integers(0, 360, at_night.shape), days)


def cents(rng, label):
    amounts = rng.lognormal(7.5 + 0.5 * label[:, None], 1, (len(label), LENGTH)).round()
    return np.where(rng.random(amounts.shape) < 0.5, amounts // 100 * 100 + 99, amounts)


def titles(rng, label):
    """Dense ids by popularity, each of its own taste."""
    popularity, taste = 1 / np.arange(1, 2001) ** 0.8, rng.normal(0, 0.5, 2000)
    weights = [popularity * np.exp(taste * side) for side in (-1, 1)]
    return np.array([rng.choice(2000, LENGTH, p=weights[code] / weights[code].sum()) for code in label])


def shops(rng, label):
    """Ids of the four shops of each customer. A fraud visits some of few others."""
    own = np.take_along_axis(rng.integers(1, 150, (len(label), 4)), rng.integers(0, 4, (len(label), LENGTH)), 1)
    other = rng.choice(rng.integers(1, 150, 8), own.shape)
    return np.where((rng.random(own.shape) < 0.4) & (label[:, None] == 1), other, own)


def links(rng, label):
    """Codes of which only the order differs: a page leads to its own next page, or the other way round."""
    following, pages = rng.permutation(40), rng.integers(0, 40, (len(label), LENGTH))
    for at in range(1, LENGTH):
        linked = np.where(label == 1, following[pages[:, at - 1]], np.argsort(following)[pages[:, at - 1]])
        pages[:, at] = np.where(rng.random(len(label)) < 0.5, linked, pages[:, at])
    return pages


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("draw", [coordinates, counts, ages, minutes, cents, titles, shops, links])
def test_the_rows_tell_codes_from_quantities(draw, seed):
    rng = np.random.default_rng(seed)
    label = (rng.random(1000) < 0.3).astype(int)
    values = draw(rng, label).astype(float)
    is_quantity, _ = decide(values.ravel(), np.repeat(np.arange(1000), LENGTH), label)
    assert is_quantity == (draw in (coordinates, counts, ages, minutes, cents))


@pytest.mark.parametrize("seed", range(10))
def test_codes_that_tell_nothing_stay_codes(seed):
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(300), 8)
    assert not decide(rng.integers(0, 400, len(row)).astype(float), row, rng.integers(0, 2, 300))[0]


def event_table(rows=400):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, rows)
    events = {"card": np.repeat(np.arange(rows), LENGTH), "at": np.tile(np.arange(LENGTH), rows)}
    values = {"age": ages(rng, label), "title": titles(rng, label)}
    cells = {name: column.astype(int).ravel().tolist() for name, column in {**events, **values}.items()}
    cells["age"][7] = None
    return {**cells, "y": np.repeat(np.array(["no", "yes"])[label], LENGTH).tolist()}


def kinds(dataset):
    return {field.name: field.kind for field in dataset.schema.fields}


def test_an_undeclared_column_of_events_is_read_as_decided(options, tmp_path):
    table = event_table()
    given = {"label": "y", "group_by": "card", "order_by": "at", "infer": True, "cache_dir": tmp_path / "cache"}
    decided = prepare(options(train=write(tmp_path / "t.parquet", table), **given))
    assert kinds(decided) == {"at": "time", "age": "number", "title": "category"}
    (note,) = [note for note in decided.notes if note.startswith("whole numbers: ")]
    assert note.index("age (quantity") < note.index("title (codes")
    assert not (decided.folder / "quarantine.jsonl").is_file()
    declared = {"age": {"kind": "number", "missing": "last"}, "title": "category"}
    assert prepare(options(train=tmp_path / "t.parquet", fields=declared, **given)).digest == decided.digest
    codes = prepare(options(train=tmp_path / "t.parquet", fields={"age": "category"}, **given))
    assert kinds(codes)["age"] == "category"


def test_an_undeclared_column_of_lists_is_read_as_decided(options, tmp_path):
    table = event_table()
    rows = range(0, len(table["y"]), LENGTH)
    lists = {name: [table[name][row : row + LENGTH] for row in rows] for name in ("age", "title")}
    lists["y"] = table["y"][::LENGTH]
    dataset = prepare(options(train=write(tmp_path / "t.parquet", lists), label="y", cache_dir=tmp_path / "cache"))
    assert kinds(dataset) == {"age": "number", "title": "category"}


@pytest.mark.parametrize(
    ("fields", "kind", "options_of"),
    [
        ({"age": {"missing": "value"}}, "number", {"missing": "last"}),  # says nothing about the kind
        ({"age": {"missing": "mean"}}, "number", {"missing": "mean"}),  # of numbers alone
        ({"title": {"log": True}}, "number", {"log": True}),
        ({"age": {"min_count": 2, "missing": "value"}}, "category", {"min_count": 2, "missing": "value"}),
        ({"age": "category"}, "category", {"missing": "value"}),  # the gaps are inferred as without it
    ],
)
def test_only_a_kind_or_its_options_declare_what_whole_numbers_are(options, tmp_path, fields, kind, options_of):
    given = {"label": "y", "group_by": "card", "order_by": "at", "infer": True, "fields": fields}
    dataset = prepare(options(train=write(tmp_path / "t.parquet", event_table()), **given))
    (field,) = [field for field in dataset.schema.fields if field.name in fields]
    assert (field.kind, field.options) == (kind, options_of)
    assert not (dataset.folder / "quarantine.jsonl").is_file()
