"""Event tables with labels in a second file: describe, train, predict and evaluate."""

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
    """Write `old` and `new` cards as shuffled event tables, and the labels of both as cards.csv."""
    generator = np.random.default_rng(0)
    labels = ["card,fraud,verdict"]
    for name, rows in (("new", list(cards(60, 4))), ("old", list(cards(200, 3)))):
        events = [
            {"card": row["card"], "at": 60 * index, "shop": shop, "amount": None if index % 5 == 4 else amount}
            for row in rows
            for index, (shop, amount) in enumerate(zip(row["shop"], row["amount"], strict=True))
        ]
        order = generator.permutation(len(events))
        shuffled = pa.Table.from_pylist([events[index] for index in order])
        pq.write_table(shuffled, shell.folder / f"{name}_events.parquet")
        labels += [f"{row['card']},{row['fraud']},{'stolen' if row['fraud'] == 'yes' else 'fine'}" for row in rows]
    (shell.folder / "cards.csv").write_text("\n".join([*labels, ""]))
    return rows


@pytest.fixture(scope="module")
def run(shell, tables):
    """The run folder of a training on the old events."""
    data = ["data=files", "data.train=old_events.parquet", *EVENTS]
    quick = [*SMALL, "trainer.max_epochs=1", "baseline=false", "logger=none"]
    completed = shell("train", *data, *quick, "hydra.run.dir=events")
    assert completed.exit_code == 0, completed.stderr
    return shell.folder / "events"


def test_training_reports_every_event(run):
    metrics = json.loads((run / "metrics.json").read_text())
    counts = metrics["data"]
    assert counts["train"]["events"] == counts["train"]["tokens"] + counts["validation"]["tokens"]
    assert metrics["leaks"]["rows"] == 200 and metrics["validation"]["rows"] == 40


def test_every_group_is_predicted_once_and_like_the_same_tokens_in_lists(shell, run):
    completed = shell("predict", "bundle=events/bundle", "input=new_events.parquet", "output=groups.parquet")
    assert completed.result["rows"] == 60 and completed.result["refused"] == 0
    predictions = pq.read_table(shell.folder / "groups.parquet").to_pylist()
    probabilities = {row["id"]: row["probability_yes"] for row in predictions}
    rows = list(cards(60, 4))
    assert set(probabilities) == {row["card"] for row in rows}
    row = next(row for row in rows if len(row["shop"]) > 5)
    amounts = [None if index % 5 == 4 else amount for index, amount in enumerate(row["amount"])]
    lists = {"shop": row["shop"], "amount": amounts, "gap": [60 * index for index in range(len(amounts))]}
    (shell.folder / "row.json").write_text(json.dumps(lists))
    script = (
        "import json; from seqclf.bundle.runtime import Classifier; "
        "print(Classifier('events/bundle').predict([json.load(open('row.json'))])[0]['probabilities']['yes'])"
    )
    assert float(shell.start("-c", script)().stdout) == pytest.approx(probabilities[row["card"]], abs=1e-6)


def test_evaluation_joins_the_label_file(shell, run):
    data = ["data=files", "data.test=new_events.parquet", "data.labels=cards.csv", "data.label=fraud"]
    result = shell("evaluate", "bundle=events/bundle", *data, "by=day", "output=days").result
    assert result["rows"] == 60 and result["refused"] == 0
    assert sum(part["rows"] for part in result["periods"]) == 60
    assert "<h2>Over time</h2>" in (shell.folder / "days/report.html").read_text()
    assert sum(result["support_by_class"].values()) == 60
    assert result["support_by_class"]["yes"] == sum(row["fraud"] == "yes" for row in cards(60, 4))


def test_describe_warns_of_target_leakage(shell, tables):
    completed = shell("describe", "data=files", "data.train=old_events.parquet", *EVENTS, "output=pages/events.json")
    assert completed.result["output"] == "pages/events.json"
    data = json.loads((shell.folder / "pages/events.json").read_text())
    assert data["columns"][0] == {"column": "verdict", "auroc": 1.0, "revealing": True}
    assert any("'verdict' gives the label away" in line for line in completed.result["warnings"])
    assert "gives the label away" in completed.stderr
    assert data["fields"]["amount"]["missing"]["amount"] == pytest.approx(0.1, abs=0.05)


def test_describe_without_output_writes_no_files(shell, tables, tmp_path):
    data = [
        "data=files",
        f"data.train={shell.folder}/old_events.parquet",
        *EVENTS,
        f"data.labels={shell.folder}/cards.csv",
    ]
    completed = shell("describe", *data, "baseline=false", cwd=tmp_path)
    assert completed.result["output"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_static_fields_of_the_label_file_are_joined_for_training_and_evaluation(shell, tables):
    """A bundle is evaluated with the label file, and predicts files that have the column in each event."""
    generator = np.random.default_rng(0)
    header, *lines = (shell.folder / "cards.csv").read_text().splitlines()
    homes = {line.split(",")[0]: f"c{generator.integers(4)}" for line in lines}
    described = [f"{header},home", *(f"{line},{homes[line.split(',')[0]]}" for line in lines)]
    (shell.folder / "homes.csv").write_text("\n".join([*described, ""]))
    events = pq.read_table(shell.folder / "new_events.parquet")
    home = pa.array([homes[card] for card in events.column("card").to_pylist()])
    pq.write_table(events.append_column("home", home), shell.folder / "new_with_homes.parquet")
    data = [*EVENTS, "data.labels=homes.csv", "data.static={home: category}"]
    quick = [*SMALL, "trainer.max_epochs=1", "baseline=false", "logger=none", "hydra.run.dir=homes"]
    trained = shell("train", "data=files", "data.train=old_events.parquet", *data, *quick)
    assert trained.exit_code == 0 and "static field home: category" in trained.stderr, trained.stderr
    labels = ["data=files", "data.labels=homes.csv", "data.label=fraud"]
    labels += ["output=homes_evaluation"]
    joined = shell("evaluate", "bundle=homes/bundle", "data.test=new_events.parquet", *labels).result
    repeated = shell("evaluate", "bundle=homes/bundle", "data.test=new_with_homes.parquet", *labels).result
    assert joined["rows"] == repeated["rows"] == 60
    assert joined["loss"] == pytest.approx(repeated["loss"], abs=1e-6)
    predicted = shell("predict", "bundle=homes/bundle", "input=new_with_homes.parquet", "output=homes.parquet").result
    assert predicted["refused"] == 0
    lacking = shell("predict", "bundle=homes/bundle", "input=new_events.parquet", "output=none.parquet")
    assert lacking.exit_code == 2
    assert "no column 'home' (static field home of the bundle)" in lacking.stderr.splitlines()[-1]
