"""A prediction that was killed goes on after its finished windows, and ends as an uninterrupted one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.untrained_task import data_options, make_task

from seqclf.bundle import journal, model
from seqclf.bundle.drift import LimitError, RowSample
from seqclf.bundle.journal import WINDOW, Journal, journal_folder, open_journal
from seqclf.bundle.manifest import write_manifest
from seqclf.bundle.outputs import check_output
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.bundle.runtime import Classifier
from seqclf.commands.predict import predict_file
from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError
from seqclf.runs.bundle_export import write_bundle

ROWS, WINDOW_ROWS = 205, 20
SMALL = {  # many windows, parts and thinnings of the sample
    "seqclf.bundle.model.WINDOW_ROWS": WINDOW_ROWS,
    "seqclf.bundle.explanation.WINDOW_ROWS": WINDOW_ROWS,
    "seqclf.bundle.explanation.WINDOW_TOKENS": 30,
    "seqclf.bundle.outputs.PART_ROWS": 50,
    "seqclf.bundle.drift.MAX_ROWS": 50,
}
KILLED = """
import importlib, json, os, signal, sys
from types import SimpleNamespace
from seqclf.bundle.journal import Journal
from seqclf.bundle.runtime import Classifier
from seqclf.commands.predict import predict_file

small, bundle, windows, config, explain, embeddings = json.loads(sys.argv[1])
for name, value in small.items():
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)
write = Journal._write

def killed(written, *arguments):
    write(written, *arguments)
    if written.count == windows:
        os.kill(os.getpid(), signal.SIGKILL)

Journal._write = killed
classifier = Classifier(bundle, device="cpu", threads=1, embeddings=embeddings)
predict_file(classifier, SimpleNamespace(**config), explain)
"""


class Killed(BaseException):
    """Stands for the end of the process."""


def table_of(rows, factor=1.0, seed=1):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, rows)
    shops = [random.choice(["food", "fuel", "fun"], length).tolist() for length in lengths]
    amounts = [(factor * random.lognormal(3, 1, length)).tolist() for length in lengths]
    names = [f"card {number}" for number in range(rows)]
    return pa.table({"shop": shops, "amount": amounts, "card": names, "label": ["no", "yes"] * (rows // 2)})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle with random weights that remembers the rows it was prepared on."""
    folder = tmp_path_factory.mktemp("journal")
    pq.write_table(table_of(400, seed=0), folder / "train.parquet")
    fields = {"shop": "category", "amount": "number"}
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), fields=fields, id="card"))
    rows = dataset.splits["train"]
    reference = ReferenceData(dataset.encoders, dataset.classes, "yes")
    probabilities = np.full((len(rows.labels), 2), 0.5)
    reference.fit(PredictedRows(rows.sequences, rows.lengths_before_truncation, probabilities, None), rows.sequences)
    write_bundle(make_task(dataset.description()), folder / "bundle", {}, reference=reference)
    return folder / "bundle"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Folder with `ROWS` rows whose amounts drift, some of them rejected."""
    for name, value in SMALL.items():
        monkeypatch.setattr(name, value)
    rows = table_of(ROWS + 1, factor=4.0).drop_columns("label").to_pylist()[:ROWS]
    rows[7]["shop"], rows[90]["amount"], rows[120]["shop"][0] = [], None, "unknown to the model"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "new.parquet")
    return tmp_path


@pytest.fixture
def predict(bundle, files, monkeypatch):
    """Predict to `output`. With `windows`, the command ends when it has stored as many. Return its JSON and rows."""

    def run(output, windows=None, *, explain=None, folder=bundle, threshold=None, embeddings=False, **keys):
        predicted = []

        def stored(written, *arguments):
            write(written, *arguments)
            if written.count == windows:
                raise Killed

        def counted(classifier, columns, *arguments):
            predicted.append(columns.num_rows)
            return predict_columns(classifier, columns, *arguments)

        write, predict_columns = Journal._write, model.BundleModel.predict_columns
        config = SimpleNamespace(**{**paths(files, output), **keys})
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_write", stored)
            patch.setattr(model.BundleModel, "predict_columns", counted)
            check_output(config.output)
            options = {"threshold": threshold, "embeddings": embeddings}
            classifier = Classifier(folder, device="cpu", threads=1, **options)
            result = predict_file(classifier, config, explain).to_dict()
        return {key: value for key, value in result.items() if key not in ("seconds", "rows_per_s")}, sum(predicted)

    return run


def paths(files, output):
    return {"input": str(files / "new.parquet"), "output": f"{files}/{output}", "engine": "local"}


def content(path):
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(entry.name, entry.read_bytes()) for entry in paths]


def kill(predict, output, windows, **options):
    with pytest.raises(Killed):
        predict(output, windows, **options)


@pytest.mark.parametrize(
    ("output", "explain", "embeddings"),
    [("out.parquet", None, False), ("parts/", None, True), ("out.csv", None, False), ("out.arrow", True, False)],
)
def test_the_output_is_that_of_an_uninterrupted_run(predict, bundle, files, output, explain, embeddings):
    expected, predicted = predict(output, explain=explain, embeddings=embeddings)
    assert predicted == ROWS and [path.name for path in files.glob(".seqclf*")] == []
    (files / output).rename(files / "before")
    arguments = json.dumps([SMALL, str(bundle), 3, paths(files, output), explain, embeddings])
    assert subprocess.run([sys.executable, "-c", KILLED, arguments], check=False).returncode == -signal.SIGKILL
    held = journal_folder(f"{files}/{output}")
    assert held.stat().st_mode & 0o777 == 0o700 and len([*held.glob(f"*{WINDOW}")]) == 3
    (held / "unfinished").write_bytes(b"half")
    kill(predict, output, 9, explain=explain, embeddings=embeddings)
    assert not (files / output).exists()
    result, predicted = predict(output, explain=explain, embeddings=embeddings)
    assert (result, predicted) == (expected, ROWS - 9 * WINDOW_ROWS)
    assert [each for _, each in content(files / output)] == [each for _, each in content(files / "before")]
    assert [path.name for path in files.glob(".seqclf*")] == []
    if explain is None:
        assert next(each["field"] for each in result["drift"]) == "amount" and result["unknown_share"] > 0


@pytest.mark.parametrize("changed", ["input", "bundle", "options", "embeddings"])
def test_a_change_starts_afresh_and_is_named(predict, bundle, files, changed, capsys):
    kill(predict, "out.parquet", 3)
    options = {}
    if changed == "input":
        status = (files / "new.parquet").stat()
        os.utime(files / "new.parquet", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    elif changed == "bundle":
        options["folder"] = shutil.copytree(bundle, files / "bundle")
        manifest = json.loads((files / "bundle/manifest.json").read_text())
        described = {key: value for key, value in manifest.items() if key not in ("files", "digest")}
        write_manifest(files / "bundle", {**described, "metrics": {"test": {"recall": 0.5}}})
    else:
        options |= {"embeddings": True} if changed == "embeddings" else {"explain": True, "encoding": "latin-1"}
        changed = "options"
    capsys.readouterr()
    kill(predict, "out.parquet", 1, **options)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "starts afresh:" in line]
    assert [name for name in ("input", "bundle", "options") if name in line] == [changed]
    assert predict("out.parquet", **options)[1] == ROWS - WINDOW_ROWS  # the windows of the first command are gone


@pytest.mark.parametrize("damage", [b"", b"garbage", "cut", "sample", "identity"])
def test_a_damaged_window_is_predicted_again(predict, files, damage):
    (expected, _), before = predict("out.parquet"), content(files / "out.parquet")
    kill(predict, "out.parquet", 5)
    path = sorted(journal_folder(f"{files}/out.parquet").glob(f"*{WINDOW}"))[2]
    stored = path.read_bytes()
    damaged = {"cut": stored[:-9], "sample": stored.replace(b"PK", b"KP"), "identity": stored.replace(b'"opt', b'"OPT')}
    path.write_bytes(damaged.get(damage, damage))
    result, predicted = predict("out.parquet")
    assert result == expected and content(files / "out.parquet") == before
    assert predicted == ROWS - 2 * WINDOW_ROWS


def test_rows_in_another_order_are_predicted_again(predict, files, monkeypatch):
    """A query may give other rows than before, though no file changed."""
    monkeypatch.setattr(journal, "run_identity", lambda *_: {"input": "the same"})
    kill(predict, "out.parquet", 5)
    table = pq.read_table(files / "new.parquet")
    pq.write_table(table.take(pa.array(range(ROWS)[::-1])), files / "new.parquet")
    assert predict("out.parquet")[1] == ROWS


def test_any_date_of_arrow_has_a_key():
    columns = [pa.record_batch({"day": pa.array([0, day], pa.date32())}) for day in (4_000_000, 5_000_000, 4_000_000)]
    first, other, same = (journal._key(SimpleNamespace(columns=each, first_row=1)) for each in columns)
    assert first == same != other


def test_an_output_has_one_writer(predict, files):
    output = f"{files}/out.parquet"
    with open_journal(output, {}, RowSample(SimpleNamespace(fields={}))), pytest.raises(InputError) as raised:
        predict("out.parquet")
    assert raised.value.where == f"output={output}" and "holds this output" in raised.value.problem
    predict("out.parquet")


def test_a_journal_of_another_user_is_not_read(predict, files, monkeypatch):
    """Nobody but its owner can change the mode of a folder."""
    kill(predict, "out.parquet", 3)
    monkeypatch.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted")))
    with pytest.raises(InputError) as raised:
        predict("out.parquet")
    assert raised.value.where == str(journal_folder(f"{files}/out.parquet")) and not (files / "out.parquet").exists()


def test_an_error_before_the_first_window_leaves_nothing(predict, files):
    (files / "new.parquet").unlink()
    with pytest.raises(InputError):
        predict("new/folder/out.parquet")
    assert [*files.iterdir()] == []


LIMITS = {"max_refused": "shop", "max_far": "amount", "max_drift": "amount"}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("output", ["out.parquet", "out.csv", "parts/"])
def test_rows_beyond_a_limit_write_nothing_and_leave_no_journal(predict, files, output, limit):
    path = files / output
    if output != "parts/":
        path.write_text("of yesterday")
    kill(predict, output, 3)
    for _ in range(2):  # after the windows of a killed command, and from the beginning
        with pytest.raises(LimitError) as raised:
            predict(output, **{limit: 0.001})
        assert raised.value.exit_code == 3 and raised.value.where == f"{limit}=0.001"
        assert LIMITS[limit] in raised.value.problem
        assert content(path) == [(output, b"of yesterday")] if output != "parts/" else not path.exists()
        assert not journal_folder(f"{files}/{output}").exists()
    assert predict(output, **{limit: 1.0})[1] == ROWS


def test_limits_are_those_of_the_json_line(predict, files):
    result, _ = predict("out.parquet")
    figures = {"max_refused": result["refused"] / ROWS, "max_far": result["far_share"]}
    figures["max_drift"] = result["drift"][0]["distance"]
    for limit, figure in figures.items():
        assert 0 < figure < 1
        predict("out.parquet", **{limit: figure + 1e-4})
        with pytest.raises(LimitError):
            predict("out.parquet", **{limit: figure - 1e-4})


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", ["rows", "table", "file", "reader"])
def test_python_raises_beyond_a_limit(bundle, files, form, limit):
    table, loaded = pq.read_table(files / "new.parquet"), Classifier(bundle, device="cpu", threads=1)
    rows = table.select(["shop", "amount"]).to_pylist()

    def predicted(**limits):
        data = {"rows": rows, "table": table, "file": files / "new.parquet", "reader": table.to_reader(50)}[form]
        result = loaded.predict(data, **limits)
        return result.read_all() if form == "reader" else result

    with pytest.raises(LimitError):
        predicted(**{limit: 0.001})
    assert len(predicted(**{limit: 1.0})) == ROWS


def test_a_limit_of_what_nothing_measures_is_rejected(predict, bundle):
    for limits in ({"max_far": 0.1}, {"max_drift": 0.1}):
        with pytest.raises(InputError, match="not measured"):
            predict("out.parquet", explain=True, **limits)
    with pytest.raises(InputError, match="must be from 0 to 1"):
        Classifier(bundle, device="cpu", threads=1).predict([], max_far=2)
