"""Rows that are too long for one run of the model: read by chunks, or rejected if they need too much memory."""

import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, export_table

from seqclf.batching.collate import pad
from seqclf.bundle import sequence_reader
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.sequence_reader import ReaderLimits, WholeSequences, read_sequences
from seqclf.config.command_keys import default_settings
from seqclf.data.encoding import encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.ragged import Ragged, list_offsets, take
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.runs.bundle_export import write_bundle
from seqclf.system.resources import STATUS
from seqclf.training.task import SequenceTask

FORWARD = {"cell": "gru", "bidirectional": False, "pooling": "mean+attention", "hidden_size": 48}
KINDS = ("events", "text", "position", "visits", "card")
LENGTHS = [3, 16, 17, 40, 5, 96, 16]
LONG = 16


def rows_of(lengths):
    generator = np.random.default_rng(1)
    return [generator.integers(1, 9, length).tolist() for length in lengths]


TABLE = pa.table({"tokens": rows_of([4, 7, 9] * 10), "label": ["a", "b", "c"] * 10})


def export(folder, model):
    export_table(folder, TABLE, model)
    return folder / "bundle"


@pytest.fixture(scope="module")
def forward(tmp_path_factory):
    return export(tmp_path_factory.mktemp("long_forward"), FORWARD)


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory):
    return export(tmp_path_factory.mktemp("long_both_ways"), {})


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long_attention")
    pq.write_table(TABLE, folder / "train.parquet")
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet")))
    model = default_settings("model", "transformer")
    write_bundle(SequenceTask(dataset.description(), model).eval(), folder / "bundle", {})
    return Classifier(folder / "bundle", device="cpu", threads=1)


@pytest.fixture
def short_limits(monkeypatch):
    """Rows of more than 16 tokens are long, and are read in chunks of 5 tokens."""
    monkeypatch.setattr(sequence_reader, "MAX_TOKENS", LONG)
    monkeypatch.setattr(sequence_reader, "LONG_ROW", LONG)
    monkeypatch.setattr(sequence_reader, "LONG_ROW_CHUNK", 5)
    monkeypatch.setattr(sequence_reader, "LONG_ROW", LONG)


@pytest.fixture
def by_chunks(monkeypatch):
    """List of the lengths of each batch that is read by chunks."""
    batches, read_chunks = [], sequence_reader.read_chunks

    def record(model, fields, lengths, chunk):
        batches.append(lengths.tolist())
        return read_chunks(model, fields, lengths, chunk)

    monkeypatch.setattr(sequence_reader, "read_chunks", record)
    return batches


def encode(classifier, rows):
    sequences = classifier.python_rows.to_sequences(rows, None)
    assert sequences is not None
    return sequences


def test_chunks_have_the_logits_of_whole_rows(forward, by_chunks, request):
    rows = rows_of([*LENGTHS, 2500])
    whole = Classifier(forward, device="cpu", threads=1)
    expected = whole.logits(encode(whole, rows))
    assert not by_chunks
    request.getfixturevalue("short_limits")
    classifier = Classifier(forward, device="cpu", threads=2)
    found = classifier.logits(encode(classifier, rows))
    assert sorted(by_chunks) == [[17], [40], [96], [2500]]  # each long row alone, and no other row
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.array_equal(found, expected)


@pytest.mark.usefixtures("short_limits")
def test_the_reading_of_a_row_depends_on_its_own_length_only(forward, by_chunks):
    classifier, rows = Classifier(forward, device="cpu", threads=1), rows_of(LENGTHS)
    sequences = encode(classifier, rows)
    together = classifier.logits(sequences)
    for row, length in enumerate(LENGTHS):
        by_chunks.clear()
        alone = classifier.logits(take(sequences, np.array([row])))
        assert by_chunks == ([[length]] if length > LONG else [])
        if length > LONG:
            assert np.array_equal(alone[0], together[row])
    listed = [row["probability"] for row in classifier.predict(rows)]
    assert listed == classifier.predict(pa.table({"tokens": rows}))["probability"].to_pylist()


def limited(folder, length, monkeypatch):
    """Return a classifier on a machine of twice the memory of `length` tokens."""
    classifier = Classifier(folder, device="cpu", threads=2)
    fields, _ = pad(encode(classifier, rows_of([length])), np.array([0]))
    memory = 2 * classifier.memory_estimate.needed(fields, length)
    monkeypatch.setattr(sequence_reader, "available_memory", lambda: memory)
    return classifier


@pytest.mark.usefixtures("short_limits")
def test_a_row_that_needs_too_much_memory_has_its_own_error(both_ways, monkeypatch):
    classifier, rows = limited(both_ways, 40, monkeypatch), rows_of(LENGTHS)
    found = classifier.predict(rows)
    assert [bool(row["error"]) for row in found] == [length == 96 for length in LENGTHS]
    assert found[5]["error"].startswith("tokens has 96 tokens; this model needs about 0.0 GB for them, above the limit")
    assert found[5]["probabilities"] is None
    kept = [row for row, length in enumerate(LENGTHS) if length != 96]
    assert [found[row] for row in kept] == classifier.predict([rows[row] for row in kept])
    table = classifier.predict(pa.table({"tokens": rows}))
    assert table["error"].to_pylist() == [row["error"] for row in found]
    assert table["probability"].to_pylist() == [row["probability"] for row in found]
    explained = classifier.explain(rows[4:6])
    assert explained[0]["error"] is None and explained[1]["error"] == found[5]["error"]


def test_rows_below_the_threshold_are_not_measured(both_ways, monkeypatch):
    classifier = limited(both_ways, 1, monkeypatch)
    monkeypatch.setattr(classifier.memory_estimate, "needed", None)
    assert [row["error"] for row in classifier.predict(rows_of([sequence_reader.LONG_ROW, 3]))] == [None, None]


def test_models_that_read_chunks_have_no_limit(forward):
    assert Classifier(forward, device="cpu").memory_estimate is None


def check_memory(classifier, columns):
    """Compare the memory that is predicted for a long row like that of `columns` with the measured memory."""
    fields, _ = pad(encoders.encode(classifier.encoders, columns, NO_TRUNCATION).sequences, np.array([0]))
    memory, length = classifier.memory_estimate, 6001
    predicted, (tensors, peak) = memory.needed(fields, length), memory._measure(fields, length)
    assert 0.8 * tensors < predicted < 2 * peak
    assert predicted / memory.needed(fields, 2 * length) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_grows_with_the_length(exported, classifier, kind):
    model = classifier(kind)
    columns, _ = model.python_rows.to_columns(exported(kind).sequences[:1])
    check_memory(model, columns)


@pytest.mark.parametrize("form", ["treebank", "expressions"])
def test_the_memory_of_trees_is_measured(trees, form):
    model = trees(form).classifier
    source = pa.table({"tree": ["(pos (neg not) (neg bad))" if form == "treebank" else "[MAX 2 3 ]"]})
    window = next(iter(model.windows(model.table_source(source))))
    check_memory(model, window.columns)


def test_the_memory_of_attention_grows_with_the_square_of_the_length(attention, monkeypatch):
    memory = attention.memory_estimate
    fields, _ = pad(encode(attention, rows_of([4])), np.array([0]))
    assert memory.needed(fields, 6001) == pytest.approx(memory._measure(fields, 6001)[0], rel=0.1)
    assert memory.needed(fields, 600_000) == pytest.approx(4 * memory.needed(fields, 300_000), rel=0.01)
    monkeypatch.setattr(sequence_reader, "available_memory", lambda: 24e9)
    error = memory.errors(Ragged(np.array([0, 600_000]), {"tokens": np.zeros(600_000, np.int32)}))[0]
    assert error.startswith("has 600,000 tokens; this model needs about 2,") and "limit of 12.0 GB" in error


@pytest.mark.usefixtures("short_limits")
def test_the_bundles_stay_sound(forward, both_ways):
    for folder in (forward, both_ways):
        assert Classifier(folder, device="cpu", threads=1).check().passed


class SlowSession:
    """A session that notes how many runs of long rows take place at the same time."""

    def __init__(self):
        self.running, self.most, self.options, self.lock = 0, 0, [], threading.Lock()

    def get_providers(self):
        return ["CPUExecutionProvider"]

    def run(self, names, arrays, options=None):
        if options is None:
            return [np.zeros((len(arrays["lengths"]), 1), np.float32)]
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.options.append(options.get_run_config_entry("memory.enable_memory_arena_shrinkage"))
        time.sleep(0.02)
        with self.lock:
            self.running -= 1
        return [np.zeros((1, 1), np.float32)]


@pytest.mark.usefixtures("short_limits")
def test_whole_long_rows_are_read_one_at_a_time_and_give_their_memory_back():
    session, offsets = SlowSession(), list_offsets(np.array([20, 3, 30, 40, 4, 50]))
    read = WholeSequences(session, ["value"])
    read_sequences(read, Ragged(offsets, {"value": np.arange(offsets[-1])}), 1, ReaderLimits(LONG, workers=4))
    assert session.most == 1 and session.options == ["cpu:0"] * 4


PEAK = """
import sys
from seqclf.bundle.runtime import Classifier
from seqclf.system.resources import peak_mb
classifier = Classifier(sys.argv[1], device="cpu", threads=1)
for length in (2000, 200_000):
    assert classifier.predict([[1, 2] * (length // 2)])[0]["error"] is None
    print(peak_mb())
"""


@pytest.mark.skipif(not STATUS.exists(), reason="the peak of a process is exact on Linux only")
def test_chunks_keep_the_memory_of_a_short_row(forward):
    ended = subprocess.run([sys.executable, "-c", PEAK, forward], capture_output=True, text=True, check=True)
    short, long = map(float, ended.stdout.split())
    assert long - short < 60  # 300 MB if the row is read whole
