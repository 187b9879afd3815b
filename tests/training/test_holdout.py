"""The rows kept apart for a promise: independent ones, where rows come in groups too."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.prepare import prepare
from seqclf.evaluation.decision import choose_decision
from seqclf.training.holdout import hold_out, holdout_rows, one_of_each

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
def test_groups_stay_on_one_side_and_count_once(rows):
    labels, groups = (np.array(values) for values in zip(*rows, strict=True))
    apart = holdout_rows(labels, 0.5, groups)
    assert not set(groups[apart]) & set(groups[~apart])
    counted = one_of_each(np.flatnonzero(apart), groups)
    assert sorted(groups[counted]) == sorted(set(groups[apart])) and apart[counted].all()


def broken_share(grouped, repeats):
    """Share of backed promises that fall short on as many new groups, each of equal rows."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(1000), COPIES)
    labels = np.repeat((np.arange(1000) < 100).astype(int), COPIES)
    apart = holdout_rows(labels, 0.5, groups if grouped else None)
    rows = one_of_each(np.flatnonzero(apart), groups) if grouped else np.flatnonzero(apart)
    broken = 0
    for _ in range(repeats):
        margins = (generator.normal(size=1000) + 1.5 * (np.arange(1000) < 100))[groups]
        logits = np.stack([np.zeros(len(rows)), margins[rows]], axis=1)
        decision = choose_decision(SETTINGS, logits, labels[rows], ["no", "yes"], "yes")
        assert decision.targets[0].backed
        new = generator.normal(size=decision.targets[0].rows // (1 if grouped else COPIES)) + 1.5
        broken += decision.choose(np.stack([np.zeros(len(new)), new], axis=1)).mean() < 0.8
    return broken / repeats


def test_a_promise_counts_groups_not_their_copies():
    repeats = 600
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)
    assert broken_share(grouped=True, repeats=repeats) <= limit
    assert broken_share(grouped=False, repeats=repeats) > limit, "else the simulation could not tell"


@pytest.mark.parametrize(("by", "column"), [("distinct", None), ("group", "who")])
def test_the_rows_that_a_split_keeps_together_are_known_to_the_dataset(options, tmp_path, by, column):
    path, generator = tmp_path / "t.parquet", np.random.default_rng(0)
    who = generator.integers(0, 60, 600)
    table = {"x": [[int(one), 1, 2] for one in who], "who": [f"p{one}" for one in who], "label": ["no", "yes"] * 300}
    pq.write_table(pa.table(table), path)
    split = {"by": by, "column": column, "test": 0.2}
    dataset = prepare(options(train=path, label="label", positive="yes", fields={"x": "category"}, split=split))
    kept, apart = hold_out(dataset, SETTINGS, "min_recall")
    people = [set(who[part.rows - 1]) for part in (kept.splits["validation"], apart)]
    assert people[0] and people[1] and not people[0] & people[1]
    assert len(apart.labels) == len(people[1]), "a row of each"
