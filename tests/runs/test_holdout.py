"""Holdout rows of a guarantee are independent, also where rows come in groups."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.prepare import prepare
from seqclf.evaluation.decision import choose_decision
from seqclf.runs.fit import hold_out, holdout_rows, one_of_each

SETTINGS = {
    "min_recall": 0.8,
    "min_precision": None,
    "max_alerts": None,
    "cost": None,
    "confidence": 0.95,
    "holdout": 0.5,
    "provisional": False,
    "calibrate": False,
}
COPIES = 6


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), min_size=2, max_size=60))
def test_groups_are_not_divided_and_count_once(rows):
    labels, groups = (np.array(values) for values in zip(*rows, strict=True))
    held_out = holdout_rows(labels, 0.5, groups)
    assert not set(groups[held_out]) & set(groups[~held_out])
    representatives = one_of_each(np.flatnonzero(held_out), groups)
    assert sorted(groups[representatives]) == sorted(set(groups[held_out])) and held_out[representatives].all()


def broken_share(grouped, repeats):
    """Return the share of backed guarantees that fail on as many new groups, each of equal rows."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(1000), COPIES)
    labels = np.repeat((np.arange(1000) < 100).astype(int), COPIES)
    held_out = holdout_rows(labels, 0.5, groups if grouped else None)
    rows = one_of_each(np.flatnonzero(held_out), groups) if grouped else np.flatnonzero(held_out)
    broken = 0
    for _ in range(repeats):
        margins = (generator.normal(size=1000) + 1.5 * (np.arange(1000) < 100))[groups]
        logits = np.stack([np.zeros(len(rows)), margins[rows]], axis=1)
        decision = choose_decision(SETTINGS, logits, labels[rows], ["no", "yes"], "yes")
        assert decision.targets[0].backed
        new = generator.normal(size=decision.targets[0].rows // (1 if grouped else COPIES)) + 1.5
        broken += decision.choose(np.stack([np.zeros(len(new)), new], axis=1)).mean() < 0.8
    return broken / repeats


def test_a_guarantee_counts_groups_not_their_copies():
    repeats = 600
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)
    assert broken_share(grouped=True, repeats=repeats) <= limit
    assert broken_share(grouped=False, repeats=repeats) > limit, "else the simulation shows nothing"


@pytest.mark.parametrize(
    ("by", "group"), [("distinct", None), ("group", "who"), ("random", "who"), ("time", "who"), ("fold", "who")]
)
def test_groups_are_held_out_together(options, tmp_path, by, group):
    path, generator = tmp_path / "t.parquet", np.random.default_rng(0)
    who = generator.integers(0, 60, 600)
    table = {"x": [[int(one), 1, 2] for one in who], "who": [f"p{one}" for one in who], "label": ["no", "yes"] * 300}
    table["when"] = generator.random(600)
    pq.write_table(pa.table(table), path)
    split = {"by": by, "column": "when" if by == "time" else None, "test": 0.2}
    keys = {"train": path, "label": "label", "positive": "yes", "fields": {"x": "category"}, "group": group}
    dataset = prepare(options(**keys, split=split))
    remaining, held_out = hold_out(dataset, SETTINGS, "min_recall")
    groups_of = [set(who[part.row_numbers - 1]) for part in (remaining.splits["validation"], held_out)]
    assert groups_of[0] and groups_of[1] and not groups_of[0] & groups_of[1]
    assert len(held_out.labels) == len(groups_of[1]), "one row of each group"


@pytest.mark.parametrize("by", ["random", "time", "group"])
def test_rows_without_a_group_are_held_out_one_by_one(options, tmp_path, by):
    path = tmp_path / "t.parquet"
    table = {"x": [[1, 2]] * 200, "who": [None] * 200, "when": list(range(200)), "label": ["no", "yes"] * 100}
    pq.write_table(pa.table({**table, "who": pa.array(table["who"], pa.string())}), path)
    keys = {"train": path, "label": "label", "positive": "yes", "fields": {"x": "category"}, "group": "who"}
    split = {"by": by, "column": "when" if by == "time" else None, "validation": 0.4}
    dataset = prepare(options(**keys, split=split))
    remaining, held_out = hold_out(dataset, SETTINGS, "min_recall")
    assert len(held_out.labels) + len(remaining.splits["validation"].labels) == len(dataset.splits["validation"].labels)
    assert len(held_out.labels) >= 30 and len(set(held_out.groups.tolist())) == len(held_out.labels)
