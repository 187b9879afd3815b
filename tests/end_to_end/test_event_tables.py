"""An event table with labels of its own: described, trained, predicted and evaluated by the real commands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.card_rows import SMALL, cards

FIELDS = "data.fields={shop: category, amount: {kind: number, missing: last}, gap: {kind: time, column: at}}"
EVENTS = ["data.group_by=card", "data.order_by=at", "data.labels=cards.csv", "data.label=fraud", FIELDS]


@pytest.fixture(scope="module")
def tables(shell):
    """The cards of two files of sequences as events in a random order, and their labels."""
    generator = np.random.default_rng(0)
    labels = ["card,fraud,verdict"]
    for name, rows in (("new", list(cards(60, 4))), ("old", list(cards(200, 3)))):
        events = [
            {"card": row["card"], "at": 60 * index, "shop": shop, "amount": None if index % 5 == 4 else amount}
            for row in rows
            for index, (shop, amount) in enumerate(zip(row["shop"], row["amount"], strict=True))
        ]
        order = generator.permutation(len(events))
        pq.write_table(pa.Table.from_pylist([events[index] for index in order]), shell.here / f"{name}_events.parquet")
        labels += [f"{row['card']},{row['fraud']},{'stolen' if row['fraud'] == 'yes' else 'fine'}" for row in rows]
    (shell.here / "cards.csv").write_text("\n".join([*labels, ""]))
    return rows


@pytest.fixture(scope="module")
def run(shell, tables):
    data = ["data=files", "data.train=old_events.parquet", *EVENTS]
    done = shell("train", *data, *SMALL, "logger=none", "hydra.run.dir=events")
    assert done.code == 0, done.err
    return shell.here / "events"


def test_training_writes_the_baseline_beside_the_model(run):
    metrics = json.loads((run / "metrics.json").read_text())
    baseline = metrics["baseline"]
    assert baseline["split"] == "validation" and baseline["rows"] == metrics["validation"]["rows"] == 40
    assert {"loss", "accuracy", "recall", "positive"} <= set(baseline)
    assert (
        metrics["data"]["train"]["events"]
        == metrics["data"]["train"]["tokens"] + metrics["data"]["validation"]["tokens"]
    )
    assert metrics["leaks"]["rows"] == 200


def test_every_group_is_predicted_once_and_as_the_same_steps_in_a_list(shell, run):
    done = shell("predict", "bundle=events/bundle", "input=new_events.parquet", "output=groups.parquet")
    assert done.result["rows"] == 60 and done.result["refused"] == 0
    found = {row["id"]: row["probability_yes"] for row in pq.read_table(shell.here / "groups.parquet").to_pylist()}
    rows = list(cards(60, 4))
    assert set(found) == {row["card"] for row in rows}
    row = next(row for row in rows if len(row["shop"]) > 5)
    amounts = [None if index % 5 == 4 else amount for index, amount in enumerate(row["amount"])]
    lists = {"shop": row["shop"], "amount": amounts, "gap": [60 * step for step in range(len(amounts))]}
    (shell.here / "one.json").write_text(json.dumps(lists))
    script = (
        "import json; from seqclf.bundle.runtime import Classifier; "
        "print(Classifier('events/bundle').predict([json.load(open('one.json'))])[0]['probabilities']['yes'])"
    )
    assert float(shell.start("-c", script)().out) == pytest.approx(found[row["card"]], abs=1e-6)


def test_evaluation_joins_the_labels(shell, run):
    where = ["data=files", "data.test=new_events.parquet", "data.labels=cards.csv", "data.label=fraud"]
    result = shell("evaluate", "bundle=events/bundle", *where).result
    assert result["rows"] == 60 and result["refused"] == 0
    assert sum(result["support_by_class"].values()) == 60
    assert result["support_by_class"]["yes"] == sum(row["fraud"] == "yes" for row in cards(60, 4))


def test_describe_tells_what_gives_the_label_away(shell, tables):
    done = shell("describe", "data=files", "data.train=old_events.parquet", *EVENTS, "output=pages/events.html")
    assert done.result["columns"][0] == {"column": "verdict", "auroc": 1.0, "revealing": True}
    assert any("'verdict' gives the label away" in line for line in done.result["warnings"])
    assert "verdict" in (shell.here / "pages/events.html").read_text() and "gives the label away" in done.err
    assert done.result["fields"]["amount"]["missing"]["amount"] == pytest.approx(0.1, abs=0.05)


def test_describe_writes_no_page_where_none_is_wanted(shell, tables, tmp_path):
    data = ["data=files", f"data.train={shell.here}/old_events.parquet", *EVENTS, f"data.labels={shell.here}/cards.csv"]
    done = shell("describe", *data, "output=null", "baseline=false", cwd=tmp_path)
    assert done.result["baseline"] is None
    assert list(tmp_path.iterdir()) == []
