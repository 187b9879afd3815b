"""The query of training is part of the bundle: raw files are predicted and evaluated like prepared ones."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import export_table

from seqclf.bundle.runtime import Classifier
from seqclf.bundle.windows import LabelColumns
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

QUERY = """
    SELECT customer AS id, list_transform(items, lambda item: lower(item)) AS items, label
    FROM input
    WHERE len(items) > 0
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Folder with a bundle that was trained by a query on train.parquet, and the raw table."""
    folder = tmp_path_factory.mktemp("raw")
    generator = np.random.default_rng(0)
    items = [generator.choice(["Milk", "BREAD", "tea"], length).tolist() for length in generator.integers(0, 6, 60)]
    labels = [f"k{row % 2}" for row in range(60)]
    table = pa.table({"customer": [f"c{row}" for row in range(60)], "items": items, "label": labels})
    export_table(folder, table, query=QUERY, id="id")
    return folder, table


def predictions(classifier, path):
    source = Source(str(path), "input", **classifier.manifest["reader"])
    batches = list(classifier.predict_source(source))
    ids = [id for rows, _ in batches for id in rows.columns.column("id").to_pylist()]
    return ids, np.concatenate([result.probabilities for _, result in batches])


def test_raw_files_without_labels_are_predicted_like_their_rows(raw, tmp_path):
    folder, table = raw
    classifier = Classifier(folder / "bundle", device="cpu")
    pq.write_table(table.drop_columns("label"), tmp_path / "new.parquet")
    ids, probabilities = predictions(classifier, tmp_path / "new.parquet")
    kept = [row for row in table.to_pylist() if row["items"]]
    assert ids == [row["customer"] for row in kept] and len(kept) < 60
    by_hand, errors = classifier.python_rows.to_columns([[item.lower() for item in row["items"]] for row in kept])
    np.testing.assert_allclose(probabilities, classifier.predict_columns(by_hand).probabilities, atol=1e-6)
    assert errors == [None] * len(kept)


def test_a_labelled_raw_file_is_read_with_its_labels(raw):
    folder, _ = raw
    classifier = Classifier(folder / "bundle", device="cpu")
    source = Source(str(folder / "train.parquet"), "data.test", **classifier.manifest["reader"])
    labels = [
        label
        for rows, _ in classifier.predict_source(source, LabelColumns("label"))
        for label in rows.columns.column("label").to_pylist()
    ]
    assert set(labels) == {"k0", "k1"}


def test_the_query_of_a_changed_bundle_cannot_read_other_files(raw, tmp_path):
    folder, _ = raw
    classifier = Classifier(folder / "bundle", device="cpu")
    (tmp_path / "secret.csv").write_text("items\n[a]\n")
    classifier.manifest["reader"]["query"] = f"SELECT * FROM '{tmp_path}/secret.csv'"
    with pytest.raises(InputError, match="can read the table input only"):
        predictions(classifier, folder / "train.parquet")


def test_the_query_of_a_bundle_is_no_file(raw, tmp_path):
    folder, _ = raw
    (tmp_path / "mine.sql").write_text("SELECT * FROM input")
    classifier = Classifier(folder / "bundle", device="cpu")
    classifier.manifest["reader"]["query"] = f"{tmp_path}/mine.sql"
    with pytest.raises(InputError, match=r"data\.query: .*mine\.sql is a file"):
        predictions(classifier, folder / "train.parquet")


def test_rows_in_python_are_refused_where_the_query_would_change_them(raw):
    folder, table = raw
    classifier = Classifier(folder / "bundle", device="cpu")
    rows = [row for row in table.drop_columns("label").to_pylist() if row["items"]]
    for call in (classifier.predict, classifier.predict_proba, classifier.explain):
        for data in ([row["items"] for row in rows], {"items": ["Milk"]}):
            with pytest.raises(InputError) as caught:
                call(data)
            assert caught.value.where == f"bundle={folder}/bundle" and "from_pylist" in caught.value.remedy
    with pytest.raises(InputError, match=r"data\.query changes the fields"):
        classifier.stream()
    assert classifier.predict(pa.Table.from_pylist(rows)).num_rows == len(rows)


def test_rows_in_python_are_taken_where_the_query_leaves_the_fields_alone(raw):
    folder, _ = raw
    classifier = Classifier(folder / "bundle", device="cpu")
    sequence = [["milk", "tea"]]
    expected = Classifier(folder / "bundle", device="cpu").python_rows.to_columns(sequence)[0]
    for query in (
        "SELECT basket AS items, label FROM input WHERE len(basket) > 0",
        "SELECT *, lower(label) AS l FROM input",
    ):
        classifier.manifest["reader"]["query"] = query
        np.testing.assert_allclose(
            classifier.predict_proba(sequence), classifier.predict_columns(expected).probabilities
        )
