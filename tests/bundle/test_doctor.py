"""The checks of a bundle pass on sound ones of all kinds, and name what is wrong with damaged ones."""

import hashlib
import io
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from bundle.conftest import sequences_of
from bundle.test_malformed import write_signed
from onnx import helper, numpy_helper
from support.untrained_task import data_options, export_table, make_task

from seqclf.bundle import soundness
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.soundness import CHECKS, GATES, CheckedBundle, examine
from seqclf.config.command import run
from seqclf.data.prepare_data import prepare
from seqclf.runs.bundle_export import write_bundle

NAMES = [function.__name__.replace("_", " ") for function in CHECKS]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(soundness, "SECONDS", 0.001)


def examined(folder):
    return examine(CheckedBundle(Path(folder), "cpu", 1))


def failed(folder):
    """Names of the checks that fail. Those that need a failed one do not run, and all others do."""
    found = examined(folder)
    names = [check.name for check in found.checks if check.passed is False]
    assert [check.name for check in found.checks] == NAMES and found.passed is not bool(names)
    assert found.exit_code == int(bool(names))
    gates = [name for name in names if name in [gate.__name__ for gate in GATES]]
    skipped = [check.name for check in found.checks if check.detail.startswith("not run")]
    assert skipped == (NAMES[NAMES.index(gates[0]) + 1 :] if gates else [])
    return names


def rows_of_events(count=30):
    generator = np.random.default_rng(0)
    rows = []
    for row in range(count):
        length = int(generator.integers(1, 9))
        rows.append(
            {
                "shop": generator.choice(["food", "fuel", "fun"], length).tolist(),
                "amount": generator.lognormal(size=length).tolist(),
                "when": np.cumsum(generator.integers(1, 900, length)).tolist(),
                "label": f"k{row % 2}",
            }
        )
    return pa.Table.from_pylist(rows)


FIELDS = {"shop": "category", "amount": "number", "when": "time"}


@pytest.mark.parametrize("kind", ["text", "position", "visits", "alerts"])
def test_a_sound_bundle_passes(exported, kind):
    assert failed(exported(kind).folder) == []


@pytest.mark.parametrize("form", ["treebank", "expressions"])
def test_a_sound_bundle_of_trees_passes(trees, form):
    assert failed(trees(form).classifier.folder) == []


def test_a_sound_bundle_of_trees_as_lists_passes(tmp_path):
    table = {"words": [["good", "bad"], ["bad"]] * 10, "heads": [[-1, 0], [-1]] * 10, "label": ["a", "b"] * 10}
    fields = {"tree": {"kind": "tree", "columns": ["words", "heads"]}}
    assert failed(export_table(tmp_path, table, fields=fields).folder) == []


@pytest.mark.parametrize("changes", [{"bidirectional": False}, {"members": 2}], ids=["step", "ensemble"])
def test_a_sound_bundle_of_events_passes_and_gives_all_figures(tmp_path, changes):
    classifier = export_table(tmp_path, rows_of_events(), changes, fields=FIELDS)
    assert failed(classifier.folder) == []
    figures = {check.name: check.figure for check in classifier.check().checks}
    assert 0 < figures["same logits"] < 1e-5 and figures["speed"] > 0
    assert figures["one token"] >= 2 and figures["labels"] == figures["versions"] == 0


def test_a_sound_bundle_with_static_fields_passes(tmp_path):
    rows = rows_of_events().to_pylist()
    table = [{**row, "country": f"c{number % 3}", "age": 20.0 + number} for number, row in enumerate(rows)]
    static = {"country": "category", "age": {"kind": "number", "missing": "mean"}}
    classifier = export_table(tmp_path, pa.Table.from_pylist(table), fields=FIELDS, static=static)
    assert [spec["name"] for spec in classifier.specs if spec.get("static")] == ["country", "age"]
    assert failed(classifier.folder) == []


def test_other_versions_are_a_warning(copy_bundle):
    folder = copy_bundle("events")
    write_signed(folder, {**manifest_of(folder), "versions": {"onnxruntime": "1.0", "numpy": np.__version__}})
    found = {check.name: check for check in examined(folder).checks}["versions"]
    assert (found.passed, found.figure) == (None, 1)


def test_check_of_a_classifier_is_the_result_of_the_command(exported, monkeypatch, capsys):
    folder = exported("events").folder
    monkeypatch.setattr(sys, "argv", ["doctor", f"bundle={folder}", "device=cpu", "threads=1"])
    run("doctor")
    printed, shown = capsys.readouterr()
    found = json.loads(printed)
    expected = json.loads(json.dumps(Classifier(folder, device="cpu", threads=1).check().to_dict()))
    assert found.keys() == {"bundle", "passed", "checks"} and found["passed"]
    for one, other in zip(found["checks"], expected["checks"], strict=True):
        assert one.keys() == {"name", "passed", "figure", "detail"}
        assert one == other or one["name"] == "speed"
    assert all(name in shown for name in NAMES) and len(shown.splitlines()) < 50


def test_the_command_ends_with_1_for_a_damaged_bundle(copy_bundle, monkeypatch, capsys):
    folder = copy_bundle("events")
    (folder / "model.onnx").unlink()
    monkeypatch.setattr(sys, "argv", ["doctor", f"bundle={folder}", "device=cpu"])
    with pytest.raises(SystemExit) as ended:
        run("doctor")
    assert ended.value.code == 1 and json.loads(capsys.readouterr().out)["passed"] is False


# Damaged bundles.


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def sign(folder, **changes):
    manifest = {**manifest_of(folder), **changes}
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    write_signed(folder, manifest)


def change_graph(folder, change):
    model = onnx.load(folder / "model.onnx")
    change(model.graph)
    onnx.save(model, folder / "model.onnx")
    sign(folder)


def rename_input(graph, old, new):
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def rename_logits(graph):
    """Call the logits `inner`, so that nodes that are appended can make others of them."""
    rename_input(graph, "logits", "inner")
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name == "logits":
                node.output[index] = "inner"


def constant(graph, name, values):
    graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    return name


@pytest.mark.parametrize("name", ["model.onnx", "encoders/events.json", "parity.npz", "MODEL_CARD.md"])
def test_a_missing_file_fails_files(copy_bundle, name):
    folder = copy_bundle("events")
    (folder / name).unlink()
    assert failed(folder) == ["files"]


def test_a_changed_byte_fails_files(copy_bundle):
    folder = copy_bundle("events")
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    assert failed(folder) == ["files"]


def test_an_edited_manifest_fails_files(copy_bundle):
    folder = copy_bundle("alerts")
    manifest = manifest_of(folder)
    manifest["decision"]["threshold"] = 0.01
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert failed(folder) == ["files"]


def test_changed_weights_fail_parity(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        bias = next(weight for weight in graph.initializer if weight.name.endswith("output.bias"))
        bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32([1e-3, 0, 0]), bias.name))

    change_graph(folder, change)
    assert failed(folder) == ["same logits"]


def test_weights_that_change_labels_fail_labels(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        bias = next(weight for weight in graph.initializer if weight.name.endswith("output.bias"))
        bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32([0, 9, 0]), bias.name))

    change_graph(folder, change)
    assert failed(folder) == ["same logits", "labels"]


def test_a_graph_that_ignores_lengths_fails_padding(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        nodes = [
            helper.make_node("Shape", ["events"], ["shape_of_events"]),
            helper.make_node("Gather", ["shape_of_events", constant(graph, "axis_one", np.int64(1))], ["width"]),
            helper.make_node("Mul", ["lengths", constant(graph, "nothing", np.int64(0))], ["zero_lengths"]),
            helper.make_node("Add", ["zero_lengths", "width"], ["all_lengths"]),
        ]
        rename_input(graph, "lengths", "all_lengths")
        nodes[2].input[0] = "lengths"
        for node in reversed(nodes):
            graph.node.insert(0, node)

    change_graph(folder, change)
    names = failed(folder)
    assert "padding" in names and not {"batch mates", "order", *GATES} & set(names)


def test_a_graph_that_mixes_rows_fails_batch_mates(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        rename_logits(graph)
        axis = constant(graph, "rows_axis", np.int64([0]))
        graph.node.append(helper.make_node("ReduceMean", ["inner", axis], ["mean_of_rows"], keepdims=1))
        graph.node.append(helper.make_node("Add", ["inner", "mean_of_rows"], ["logits"]))

    change_graph(folder, change)
    names = failed(folder)
    assert {"same logits", "batch mates"} <= set(names) and not {"padding", "order"} & set(names)


def test_a_graph_that_reads_the_order_of_rows_fails_order(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        rename_logits(graph)
        axis = constant(graph, "rows_axis", np.int64(0))
        graph.node.append(helper.make_node("CumSum", ["inner", axis], ["logits"]))

    change_graph(folder, change)
    assert {"same logits", "batch mates", "order"} <= set(failed(folder))


def test_logits_that_are_not_finite_for_one_token_fail_one_token(copy_bundle):
    folder = copy_bundle("events")

    def change(graph):
        rename_logits(graph)
        one, axis = constant(graph, "one", np.int64(1)), constant(graph, "last_axis", np.int64([1]))
        nan = constant(graph, "nan", np.float32(np.nan))
        graph.node.append(helper.make_node("Equal", ["lengths", one], ["is_one"]))
        graph.node.append(helper.make_node("Unsqueeze", ["is_one", axis], ["is_one_column"]))
        graph.node.append(helper.make_node("Where", ["is_one_column", nan, "inner"], ["logits"]))

    change_graph(folder, change)
    assert {"same logits", "one token"} <= set(failed(folder))


@pytest.mark.parametrize("changes", [{"threshold": float("nan")}, {"positive": "k9"}, {"temperature": float("inf")}])
def test_a_decision_without_a_threshold_or_with_an_unknown_label_fails_decision(copy_bundle, changes):
    folder = copy_bundle("alerts")
    sign(folder, decision={**manifest_of(folder)["decision"], **changes})
    assert failed(folder) == ["decision"]


@pytest.mark.parametrize("left_out", ["B5_T13_short", "B1_T1_full/lengths", "B2_T2_full/logits", "B2_T2_full/events"])
def test_a_cell_or_an_array_that_is_missing_fails_the_grid(copy_bundle, left_out):
    folder = copy_bundle("events")
    with np.load(folder / "parity.npz", allow_pickle=False) as stored:
        kept = {key: stored[key] for key in stored.files if key != left_out and not key.startswith(f"{left_out}/")}
        assert len(kept) < len(stored.files)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **kept)
    (folder / "parity.npz").write_bytes(buffer.getvalue())
    sign(folder)
    assert failed(folder) == ["grid"]


@pytest.mark.parametrize("change", [lambda values: values[:-2], lambda values: [*values, 1000, 1001]])
def test_an_encoder_with_fewer_or_more_ids_fails_encoders(copy_bundle, change):
    folder = copy_bundle("events")
    path = folder / "encoders/events.json"
    path.write_text(json.dumps({"values": change(json.loads(path.read_text())["values"])}))
    sign(folder)
    assert "encoders" in failed(folder)


def test_a_model_with_other_inputs_fails_model(copy_bundle, exported):
    folder = copy_bundle("events")
    (folder / "model.onnx").write_bytes((exported("card").folder / "model.onnx").read_bytes())
    sign(folder)
    assert failed(folder) == ["model"]


@pytest.mark.parametrize("kind", ["events", "visits"])
def test_swapped_values_fail_encoders_where_the_bundle_remembers_its_data(tmp_path, kind):
    rows = [{kind: entry, "label": f"k{row % 3}"} for row, entry in enumerate(sequences_of(kind))]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = prepare(data_options(tmp_path / "cache", train=str(tmp_path / "train.jsonl")))
    split = dataset.splits["train"]
    reference = ReferenceData(dataset.encoders, dataset.classes, None)
    probabilities = np.full((len(split.sequences), 3), 1 / 3)
    reference.fit(PredictedRows(split.sequences, split.sequences.lengths, probabilities, None), split.sequences)
    folder = tmp_path / "bundle"
    write_bundle(make_task(dataset.description()), folder, {}, reference=reference)
    assert failed(folder) == []
    path = folder / f"encoders/{kind}.json"
    state = json.loads(path.read_text())
    values = state["values"]
    values[0], values[2] = values[2], values[0]
    path.write_text(json.dumps(state))
    sign(folder)
    assert failed(folder) == ["encoders"]


class Installed:
    def __init__(self, *files):
        self.files = [metadata.PackagePath(file) for file in files]


@pytest.mark.parametrize(
    ("installed", "clashes"),
    [
        ({}, 0),
        ({"onnxruntime": ["onnxruntime/capi.so"]}, 0),
        ({"onnxruntime": ["onnxruntime/capi.so"], "onnxruntime-gpu": ["onnxruntime/capi.so"]}, 1),
        ({"seqclf": ["../../bin/seqclf", "seqclf.pth"], "seqclf-runtime": ["../../bin/seqclf", "seqclf/a.py"]}, 0),
        ({"seqclf": ["seqclf/a.py", "seqclf/b.py"], "seqclf-runtime": ["seqclf/a.py", "seqclf/b.py"]}, 2),
    ],
)
def test_two_packages_with_the_same_files_fail_packages(monkeypatch, installed, clashes):
    def distribution(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return Installed(*installed[name])

    monkeypatch.setattr(metadata, "distribution", distribution)
    passed, figure, _ = soundness.packages(CheckedBundle(Path()))
    assert (passed, figure) == (not clashes, clashes)
