"""A prediction that was killed goes on after its finished windows, and ends as an uninterrupted one."""

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from support.object_store import local_store
from support.untrained_task import data_options, export_table, make_task

from seqclf.bundle import journal, model, outputs, training_memory
from seqclf.bundle.explanations import explanation
from seqclf.bundle.journal import WINDOW, Journal, journal_folder, open_journal
from seqclf.bundle.limits import LimitError
from seqclf.bundle.manifest import write_manifest
from seqclf.bundle.outputs import check_output
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.training_memory import Rows, RowSample, TrainingMemory
from seqclf.data.prepare import prepare
from seqclf.data.reading import events
from seqclf.data.reading.object_store import delete_object, object_states
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.predict import predict_file, write_results
from seqclf.runs.export import write_bundle
from seqclf.system.run_folder import LOCK

ROWS, WINDOW_ROWS = 205, 20
OUTPUTS = ["out.parquet", "out.csv", "out.jsonl", "out.arrow", "parts/"]


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
    memory = TrainingMemory(dataset.encoders, dataset.classes, "yes")
    probabilities = np.full((len(rows.labels), 2), 0.5)
    memory.fit(Rows(rows.sequences, rows.lengths_before_truncation, probabilities, None), rows.sequences)
    write_bundle(make_task(dataset.description()), folder / "bundle", {}, memory=memory)
    return folder / "bundle"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Folder with `ROWS` rows whose amounts moved, some of them refused, in many small windows, parts and samples."""
    monkeypatch.setattr(model, "WINDOW_ROWS", WINDOW_ROWS)
    monkeypatch.setattr(explanation, "WINDOW_ROWS", WINDOW_ROWS)
    monkeypatch.setattr(explanation, "WINDOW_TOKENS", 30)
    monkeypatch.setattr(outputs, "PART_ROWS", 50)
    monkeypatch.setattr(training_memory, "MAX_ROWS", 50)
    rows = table_of(ROWS + 1, factor=4.0).drop_columns("label").to_pylist()[:ROWS]
    rows[7]["shop"], rows[90]["amount"], rows[120]["shop"][0] = [], None, "unknown to the model"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "new.parquet")
    return tmp_path


@pytest.fixture
def predict(bundle, files, monkeypatch):
    """Predict to `output`. With `windows`, the command ends when it has stored as many. Return its JSON and rows."""

    def run(output, windows=None, *, explain=None, folder=bundle, file="new.parquet", threshold=None, **keys):
        predicted = []

        def stored(written, *arguments):
            write(written, *arguments)
            if written.count == windows:
                raise Killed

        def counted(classifier, columns, *arguments):
            predicted.append(columns.num_rows)
            return predict_columns(classifier, columns, *arguments)

        write, predict_columns = Journal._write, model.BundleModel.predict_columns
        config = SimpleNamespace(input=str(files / file), output=f"{files}/{output}", engine="local", **keys)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_write", stored)
            patch.setattr(model.BundleModel, "predict_columns", counted)
            check_output(config.output)
            classifier = Classifier(folder, device="cpu", threads=1, threshold=threshold)
            result = predict_file(classifier, config, explain).to_dict()
        return {key: value for key, value in result.items() if key not in ("seconds", "rows_per_s")}, sum(predicted)

    return run


def content(path):
    """Names and bytes of a file, or of the files in a folder."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(entry.name, entry.read_bytes()) for entry in paths]


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def kill(predict, output, windows, **options):
    with pytest.raises(Killed):
        predict(output, windows, **options)


@pytest.mark.parametrize("explain", [None, True])
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_output_is_that_of_an_uninterrupted_run(predict, files, output, explain):
    expected, predicted = predict(output, explain=explain)
    assert predicted == ROWS and [path.name for path in files.glob(".seqclf*")] == []
    before = content(files / output)
    remove(files / output)
    for windows in (3, 4, 9):
        kill(predict, output, windows, explain=explain)
        assert not (files / output).exists()
    result, predicted = predict(output, explain=explain)
    assert (result, predicted) == (expected, ROWS - 9 * WINDOW_ROWS)
    assert content(files / output) == before
    assert [path.name for path in files.glob(".seqclf*")] == []
    if explain is None:
        assert next(each["field"] for each in result["moved"]) == "amount" and result["unknown_share"] > 0


def test_a_window_that_was_being_written_is_predicted_again(predict, files):
    expected = predict("out.parquet"), content(files / "out.parquet")
    kill(predict, "out.parquet", 2)
    (journal_folder(f"{files}/out.parquet") / "unfinished").write_bytes(b"half")
    result, predicted = predict("out.parquet")
    assert ((result, ROWS), content(files / "out.parquet")) == expected and predicted == ROWS - 2 * WINDOW_ROWS


@pytest.mark.parametrize("changed", ["input", "bundle", "options", "options and more"])
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
    elif changed == "options":
        options["threshold"] = 0.9
    else:
        options |= {"explain": True, "encoding": "latin-1"}
    capsys.readouterr()
    result, predicted = predict("out.parquet", **options)
    assert predicted == ROWS == result["rows"]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "afresh" in line]
    assert [name for name in ("input", "bundle", "options") if name in line] == [changed.split()[0]]


@pytest.mark.parametrize("damage", [b"", b"garbage", "cut", "flipped", "run.json"])
def test_a_damaged_file_is_predicted_again(predict, files, damage):
    (expected, _), before = predict("out.parquet"), content(files / "out.parquet")
    kill(predict, "out.parquet", 5)
    path = sorted(journal_folder(f"{files}/out.parquet").glob(f"*{WINDOW}"))[2]
    stored = path.read_bytes()
    if damage == "run.json":
        (path.parent / "run.json").write_bytes(stored)
    elif damage == "flipped":
        half = len(stored) // 2
        path.write_bytes(stored[:half] + bytes([stored[half] ^ 1]) + stored[half + 1 :])
    else:
        path.write_bytes(stored[:-9] if damage == "cut" else damage)
    result, predicted = predict("out.parquet")
    assert result == expected and content(files / "out.parquet") == before
    assert predicted == ROWS - (0 if damage == "run.json" else 2 * WINDOW_ROWS)


def test_rows_in_another_order_are_predicted_again(predict, files, monkeypatch):
    """A query may give other rows than before, though no file changed."""
    monkeypatch.setattr(journal, "run_identity", lambda *_: {"input": "the same"})
    kill(predict, "out.parquet", 5)
    table = pq.read_table(files / "new.parquet")
    pq.write_table(table.take(pa.array(range(ROWS)[::-1])), files / "new.parquet")
    assert predict("out.parquet")[1] == ROWS


def test_an_output_has_one_writer(predict, files):
    output = f"{files}/out.parquet"
    with open_journal(output, {}, RowSample(SimpleNamespace(fields={}))), pytest.raises(InputError) as raised:
        predict("out.parquet")
    assert raised.value.where == f"output={output}" and "holds this output" in raised.value.problem
    predict("out.parquet")


def test_only_own_parts_are_replaced(predict, files, monkeypatch):
    kill(predict, "parts/", 3)
    other = files / "parts" / "part-00001.parquet"
    other.parent.mkdir()
    other.write_bytes(b"of somebody")
    with pytest.raises(InputError, match="is not an empty folder"):
        predict("parts/")
    assert content(files / "parts") == [("part-00001.parquet", b"of somebody")]
    other.unlink()
    with monkeypatch.context() as patch:  # killed when the output is complete, and its journal is still there
        patch.setattr(journal, "_clear", lambda *_: None)
        predict("parts/")
    complete, begun = content(files / "parts"), journal_folder(f"{files}/parts/")
    assert begun.is_dir() and len(complete) == 4
    predict("parts/")
    assert content(files / "parts") == complete and not begun.exists()
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_clear", lambda *_: None)
        predict("parts-2/")
    (files / "parts-2" / "part-00009.parquet").write_bytes(b"of somebody")
    with pytest.raises(InputError, match="is not an empty folder"):
        predict("parts-2/")
    assert len(content(files / "parts-2")) == 5


def tree(folder):
    return [
        (path.name, path.lstat().st_mode, path.is_file() and path.read_bytes()) for path in sorted(folder.iterdir())
    ]


def let_lstat_tell(patch, is_changed, **changes):
    """Let `lstat` tell other attributes of the paths for which `is_changed` is true."""
    lstat = Path.lstat

    def told(path):
        status = lstat(path)
        changed = changes if is_changed(path) else {}
        names = ("st_mode", "st_ino", "st_mtime_ns", "st_uid")
        return SimpleNamespace(**({name: getattr(status, name) for name in names} | changed))

    patch.setattr(Path, "lstat", told)


posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
OPEN = [0o770, 0o702, 0o777, 0o1777]


@posix
@pytest.mark.parametrize("change", ["owner", *OPEN])
@pytest.mark.parametrize("output", ["out.parquet", "parts/"])
def test_a_journal_of_others_is_neither_read_nor_changed(predict, files, monkeypatch, output, change):
    kill(predict, output, 3)
    held = journal_folder(f"{files}/{output}")
    if change != "owner":
        held.chmod(change)
    before = held.lstat().st_mtime_ns, tree(held.parent), tree(held)
    with monkeypatch.context() as patch, pytest.raises(InputError, match="belongs to another user, or") as raised:
        if change == "owner":
            let_lstat_tell(patch, lambda path: path == held, st_uid=os.geteuid() + 1)
        predict(output)
    assert raised.value.where == str(held) and "\n" not in str(raised.value)
    assert (held.lstat().st_mtime_ns, tree(held.parent), tree(held)) == before and not (files / output).exists()


@posix
@pytest.mark.parametrize("change", ["owner", "link", *OPEN])
def test_what_others_may_have_recorded_is_not_believed(files, monkeypatch, change):
    """A file of the user is not removed as a part of a killed command."""
    output, held = f"{files}/parts/", journal_folder(f"{files}/parts/")
    (files / "parts").mkdir()
    (files / "parts" / "thesis.txt").write_text("mine")
    held.mkdir(mode=0o700)
    outputs._record(output, outputs._folder_state(files / "parts"))
    check_output(output)
    if change == "owner":
        let_lstat_tell(monkeypatch, lambda path: path == held, st_uid=os.geteuid() + 1)
    elif change == "link":
        held.rename(files / "elsewhere")
        held.symlink_to(files / "elsewhere")
    else:
        held.chmod(change)
    with pytest.raises(InputError, match="is not an empty folder"):
        check_output(output)
    with pytest.raises(InputError), outputs.open_output(output, pa.schema({"id": pa.int64()})):
        pass
    assert content(files / "parts") == [("thesis.txt", b"mine")]


@posix
def test_a_journal_that_others_could_read_is_closed(predict, files):
    kill(predict, "out.parquet", 3)
    held = journal_folder(f"{files}/out.parquet")
    held.chmod(0o755)
    with open_journal(f"{files}/out.parquet", {}, RowSample(None)):
        assert stat.S_IMODE(held.stat().st_mode) == 0o700


def test_file_systems_without_owners_and_modes_have_journals(predict, files, monkeypatch):
    """There, each folder looks as if it belonged to somebody else and all might write to it."""
    (expected, _), before = predict("parts/"), content(files / "parts")
    shutil.rmtree(files / "parts")
    let_lstat_tell(monkeypatch, Path.is_dir, st_uid=4321, st_mode=stat.S_IFDIR | 0o777)
    kill(predict, "parts/", 3)
    result, predicted = predict("parts/")
    assert (result, predicted) == (expected, ROWS - 3 * WINDOW_ROWS) and content(files / "parts") == before
    assert [path.name for path in files.glob(".seqclf*")] == []


def test_a_window_is_not_written_through_a_link(predict, files, monkeypatch):
    write, private = Journal._write, files / "private"
    private.write_text("of the user")

    def planted(held, *arguments):
        (held.folder / "unfinished").symlink_to(private)
        write(held, *arguments)

    monkeypatch.setattr(Journal, "_write", planted)
    predict("out.parquet")
    assert private.read_text() == "of the user"


def test_processes_that_take_turns_do_not_disturb_each_other(files):
    """Each removes the folder of the journal when it is done, while others open it."""
    output, sample = f"{files}/out.parquet", RowSample(SimpleNamespace(fields={}))

    def turn(_):
        for _ in range(200):
            with suppress(InputError), open_journal(output, {"input": "same"}, sample) as held:
                assert held.folder.is_dir() and (held.folder / LOCK).is_file()
                (held.folder / "mine").write_text("")
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(turn, range(4)))
    assert not journal_folder(output).exists()


def test_a_root_as_output_is_refused(files):
    with pytest.raises(InputError, match="is not an empty folder"):
        check_output("/")


def test_an_error_leaves_no_new_folders(predict, files):
    with pytest.raises(InputError):
        predict("new/folder/out.parquet", file="none.parquet")
    assert not (files / "new").exists()


def test_an_error_before_the_first_window_leaves_nothing(predict, files):
    arrow_csv.write_csv(pa.table({"other": ["a"]}), files / "new.csv")
    with pytest.raises(InputError):
        predict("out.parquet", file="new.csv")
    assert sorted(path.name for path in files.iterdir()) == ["new.csv", "new.parquet"]


def test_an_event_table_goes_on(predict, files, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(events, "READ_EVENTS", 2048)
    folder, random = tmp_path_factory.mktemp("events"), np.random.default_rng(3)
    cards = np.repeat(np.arange(4000), random.integers(1, 5, 4000))
    random.shuffle(cards)
    table = pa.table({"card": cards, "shop": random.choice(["a", "b"], len(cards)), "time": np.arange(len(cards))})
    labels = pa.array(np.where(cards % 2, "yes", "no"))
    options = {"fields": {"shop": "category"}, "group_by": ["card"], "order_by": ["time"]}
    export_table(folder, table.append_column("label", labels), **options)
    arrow_csv.write_csv(table, files / "new.csv")
    options = {"file": "new.csv", "folder": folder / "bundle"}
    (expected, rows), before = predict("out.parquet", **options), content(files / "out.parquet")
    kill(predict, "out.parquet", 3, **options)
    result, predicted = predict("out.parquet", **options)
    assert result == expected and 0 < predicted < rows == 4000 and content(files / "out.parquet") == before


def test_parts_in_a_store_are_written_anew(predict, bundle, files, monkeypatch):
    pytest.importorskip("moto")
    with local_store() as store:
        for name, value in {**store.environment, "SEQCLF_CACHE": str(files / "cache")}.items():
            monkeypatch.setenv(name, value)
        source, url = Source(str(files / "new.parquet"), "input"), "s3://bucket/day/scores/"
        classifier = Classifier(bundle, device="cpu", threads=1)

        def run():
            check_output(url)
            sample = RowSample(classifier.memory)
            with open_journal(url, {"input": "same"}, sample) as held:
                write_results(classifier.predict_windows(source, sample, held.results), url, pa.Schema)
            return {key: store.get(key) for key in store.list_keys("day/") if not key.endswith("/")}

        expected = run()
        folder = journal_folder(url)
        assert not folder.exists() and folder.is_relative_to(files / "cache")
        with pytest.raises(InputError):
            check_output(url)
        folder.mkdir(parents=True)  # of a command that was killed before it stored a part; another machine stored these
        with pytest.raises(InputError):
            check_output(url)
        store.put("day/scores/part-00007.parquet", b"old")
        outputs._record(url, object_states(url, "output"))  # as a killed command leaves it
        delete_object(f"{url}part-00000.parquet", "output")  # which another command began to remove
        assert run() == expected


LIMITS = {"max_refused": "shop", "max_far": "amount", "max_moved": "amount"}


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
    figures["max_moved"] = result["moved"][0]["distance"]
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
    for limits in ({"max_far": 0.1}, {"max_moved": 0.1}):
        with pytest.raises(InputError, match="not measured"):
            predict("out.parquet", explain=True, **limits)
    with pytest.raises(InputError, match="must be from 0 to 1"):
        Classifier(bundle, device="cpu", threads=1).predict([], max_far=2)
