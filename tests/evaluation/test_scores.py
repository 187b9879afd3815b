"""Scores in a Parquet file are those that were written, and files of other tools are read or refused by one line."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.errors import InputError
from seqclf.evaluation.decision import CROSS_FITTED, HELD_OUT
from seqclf.evaluation.score_files import METADATA, read_run_scores, read_scores, write_run_scores, write_scores
from seqclf.evaluation.scores import NETWORK, ORDER_BLIND, ScoredRows, Scores, positions_in

CLASSES = ["2", "10", "30"]


def outputs(rows, seed=0, *, grouped=False, probabilities=False):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(rows, 3)).astype(np.float32)
    shares = generator.dirichlet(np.ones(3), rows) if probabilities else None
    lengths = generator.integers(1, 9, rows)
    return ScoredRows(
        logits if shares is None else np.log(shares),
        generator.integers(0, 3, rows),
        lengths,
        lengths > 7,
        generator.integers(-(2**62), 2**62, rows) if grouped else None,
        pa.array([None if row % 3 else f"g{row}" for row in range(rows)], pa.string()) if grouped else None,
        pa.array([f"{seed}-{row}" for row in range(rows)], pa.string()),
        shares,
        fold=generator.integers(0, 5, rows) if grouped else None,
    )


def scores(splits, role=NETWORK, name="network"):
    return Scores(
        role=role, name=name, model="LSTM", classes=CLASSES, label_type="integer", positive=None, splits=splits
    )


def same(first, second):
    for split, rows in first.splits.items():
        for one, other in zip(rows, second.splits[split], strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    return replace(first, splits={}) == replace(second, splits={}) and list(first.splits) == list(second.splits)


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 40), grouped=st.booleans(), probabilities=st.booleans())
def test_what_is_read_is_what_was_written(tmp_path_factory, rows, grouped, probabilities):
    path = tmp_path_factory.mktemp("scores") / "s.parquet"
    kinds = {"grouped": grouped, "probabilities": probabilities}
    written = scores({"train": outputs(rows, 1, **kinds), "threshold": outputs(0), "test": outputs(7, 2, **kinds)})
    written = replace(written, basis=CROSS_FITTED if grouped else HELD_OUT)
    write_scores(path, written)
    read = read_scores(path)
    assert read.splits["threshold"].logits.shape == (0, 3)
    kept = {name: part for name, part in written.splits.items() if len(part.labels)}
    assert same(replace(written, splits=kept), replace(read, splits={name: read.splits[name] for name in kept}))
    assert pq.read_table(path)["label"].to_pylist()[:rows] == [
        int(CLASSES[code]) for code in written.splits["train"].labels
    ]


def test_row_groups_bound_the_memory_and_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("seqclf.evaluation.score_files.MAX_BATCH_SCORES", 12)
    written = scores({"test": outputs(9, grouped=True)})
    write_scores(tmp_path / "s.parquet", written)
    assert pq.ParquetFile(tmp_path / "s.parquet").num_row_groups == 3
    assert same(written, read_scores(tmp_path / "s.parquet"))


def test_the_files_of_a_run_keep_the_order_of_its_models(tmp_path):
    names = ["counts", *(f"head {number}" for number in range(11))]
    models = [scores({"test": outputs(5, seed)}, name=name) for seed, name in enumerate(names)]
    write_run_scores(tmp_path, [*models, scores({"test": outputs(5, 99)})])
    assert [model.name for model in read_run_scores(tmp_path)] == [*names, "network"]
    with pytest.raises(InputError, match="holds no scores of a finished run"):
        read_run_scores(tmp_path / "other")


def test_scores_of_another_tool_need_four_columns(tmp_path):
    run = scores({"test": outputs(6, grouped=True)})
    other = {
        "split": ["test"] * 6,
        "id": run.splits["test"].ids,
        "label": [CLASSES[code] for code in run.splits["test"].labels],
        "probabilities": [[0.5, 0.25, 0.25]] * 6,
    }
    pq.write_table(pa.table(other), tmp_path / "mine.parquet")
    read = read_scores(tmp_path / "mine.parquet", run)
    assert (read.classes, read.label_type, read.model) == (CLASSES, "integer", "mine")
    assert read.splits["test"].probabilities().tolist() == [[0.5, 0.25, 0.25]] * 6
    with pytest.raises(InputError, match=r"mine\.parquet: does not name its classes; give against=SCORES"):
        read_scores(tmp_path / "mine.parquet")


@pytest.mark.parametrize("values", [list(range(6)), list("abcdef"), [0, None] * 3, [[1]] * 6])
def test_a_column_fold_counts_only_in_the_splits_that_the_metadata_lists(tmp_path, values):
    run = replace(scores({"test": outputs(6, grouped=True)}), basis=CROSS_FITTED)
    write_scores(tmp_path / "s.parquet", run)
    table = changed(pq.read_table(tmp_path / "s.parquet"), fold=values)
    with_metadata(table, tmp_path / "of_another_tool.parquet", lambda facts: [facts.pop("folds"), facts.pop("basis")])
    read = read_scores(tmp_path / "of_another_tool.parquet")
    assert read.splits["test"].fold is None and read.basis == HELD_OUT
    with_metadata(table, tmp_path / "listed.parquet", lambda facts: None)
    if values == list(range(6)):
        assert read_scores(tmp_path / "listed.parquet").splits["test"].fold.tolist() == values
    else:
        with pytest.raises(InputError, match=r"listed\.parquet: column fold (is not of type int64|has rows without)"):
            read_scores(tmp_path / "listed.parquet")


def with_metadata(table, path, change):
    facts = json.loads(table.schema.metadata[METADATA])
    change(facts)
    pq.write_table(table.replace_schema_metadata({METADATA: json.dumps(facts)}), path)


def changed(table, **columns):
    for name, values in columns.items():
        table = table.drop_columns(name) if name in table.column_names else table
        table = table if values is None else table.append_column(name, pa.array(values))
    return table


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"logits": None}, "has no column logits or probabilities"),
        ({"id": None}, "has no column id"),
        ({"label": ["2", "10", "7"]}, "label '7' is no class; the classes are 2, 10, 30"),
        ({"logits": [[1.0, 2.0, 3.0], [1.0, np.nan, 3.0], [1.0, 2.0, 3.0]]}, "row 2 has scores that are not finite"),
        ({"logits": [[1.0, 2.0]] * 3}, "has rows without 3 scores; give one for each of 2, 10, 30"),
        ({"logits": ["a", "b", "c"]}, "has scores that are no lists of numbers"),
        ({"logits": None, "probabilities": [[0.5, 0.5, 0.5]] * 3}, "has probabilities that are not shares of 1"),
        ({"split": ["a", "b", "c"]}, "has a split 'a'; name it one of train, validation, test, threshold"),
        ({"length": ["x", "y", "z"]}, "column length is not of type int64"),
    ],
)
def test_a_file_that_is_no_scores_is_refused_by_one_line(tmp_path, columns, error):
    write_scores(tmp_path / "s.parquet", scores({"test": outputs(3)}))
    table = changed(pq.read_table(tmp_path / "s.parquet"), **columns)
    pq.write_table(table, tmp_path / "s.parquet")
    with pytest.raises(InputError) as refused:
        read_scores(tmp_path / "s.parquet")
    assert str(refused.value).startswith(f"{tmp_path}/s.parquet: {error}")


WHOLE = {"role": NETWORK, "name": "n", "model": "m", "positive": None, "classes": CLASSES, "label_type": "integer"}
DAMAGED = [b"{", b"[]", b"[" * 100_000]
DAMAGED += [
    json.dumps({**WHOLE, **change}).encode()
    for change in (
        {"classes": 5},
        {"positive": "zzz"},
        {"role": "other"},
        {"basis": "planet"},
        {"folds": "test"},
    )
]


@pytest.mark.parametrize("metadata", DAMAGED)
def test_damaged_metadata_are_refused(tmp_path, metadata):
    write_scores(tmp_path / "s.parquet", scores({"test": outputs(3)}))
    table = pq.read_table(tmp_path / "s.parquet").replace_schema_metadata({METADATA: metadata})
    pq.write_table(table, tmp_path / "s.parquet")
    with pytest.raises(InputError) as refused:
        read_scores(tmp_path / "s.parquet")
    assert str(refused.value).startswith(str(tmp_path / "s.parquet"))


def test_rows_are_found_by_their_ids_in_any_order():
    whole = scores({"test": outputs(9)})
    order = np.array([4, 0, 8])
    rows = whole.splits["test"]
    part = rows._replace(**{name: getattr(rows, name)[order] for name in ("logits", "labels", "lengths", "truncated")})
    part = part._replace(ids=rows.ids.take(pa.array(order)))
    few = scores({"test": part}, ORDER_BLIND)
    assert positions_in(few, whole, "test").tolist() == [4, 0, 8]
    wrong = part._replace(labels=(part.labels + 1) % 3)
    with pytest.raises(InputError, match="split test: has other labels or ids in two files of scores"):
        positions_in(replace(few, splits={"test": wrong}), whole, "test")
    with pytest.raises(InputError, match="row 5-0 is in one file of scores only"):
        positions_in(scores({"test": outputs(3, 5)}), whole, "test")


def test_rows_of_a_run_are_found_by_their_positions_where_ids_repeat():
    whole = scores({"test": outputs(9)})
    rows = whole.splits["test"]._replace(ids=pa.array(["a"] * 5 + ["b"] * 4), positions=np.arange(9))
    whole = replace(whole, splits={"test": rows})
    order = np.array([1, 4, 8])
    few = scores({"test": rows.take(order)}, ORDER_BLIND)
    assert positions_in(few, whole, "test").tolist() == [1, 4, 8]
    unnumbered = scores({"test": rows.take(order)._replace(positions=None)}, ORDER_BLIND)
    with pytest.raises(InputError, match="split test: has ids that repeat"):
        positions_in(unnumbered, whole, "test")
    beyond = scores({"test": rows.take(order)._replace(positions=np.array([1, 4, 9]))}, ORDER_BLIND)
    with pytest.raises(InputError, match="is in one file of scores only"):
        positions_in(beyond, whole, "test")


def test_the_run_gives_the_groups_and_lengths_that_a_file_lacks(tmp_path):
    run = scores({"test": outputs(6, grouped=True)._replace(positions=np.arange(6))})
    known = run.splits["test"]
    write_scores(tmp_path / "s.parquet", run)
    table = pq.read_table(tmp_path / "s.parquet").select(["split", "id", "label", "logits"]).take(pa.array([5, 0, 3]))
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "mine.parquet")
    read = read_scores(tmp_path / "mine.parquet", run).splits["test"]
    for name in ("groups", "lengths", "truncated", "labels"):
        np.testing.assert_array_equal(getattr(read, name), getattr(known, name)[[5, 0, 3]])
    named = pq.read_table(tmp_path / "s.parquet").drop_columns(["group"])
    pq.write_table(named, tmp_path / "named.parquet")
    groups = read_scores(tmp_path / "named.parquet").splits["test"].groups
    assert len(set(groups.tolist())) == 6  # two names, and four rows without one


def test_splits_are_judged_in_their_order_whatever_the_order_of_the_rows(tmp_path):
    write_scores(
        tmp_path / "s.parquet", scores({"train": outputs(3, 1), "validation": outputs(3, 2), "test": outputs(3)})
    )
    table = pq.read_table(tmp_path / "s.parquet")
    pq.write_table(table.take(pa.array(range(8, -1, -1))), tmp_path / "s.parquet")
    assert list(read_scores(tmp_path / "s.parquet").splits) == ["train", "validation", "test"]
