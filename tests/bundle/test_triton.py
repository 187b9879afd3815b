"""The model folder for Triton: its config has every input and output of the model, in Triton's own types."""

import json
import math
import subprocess
import sys

import onnxruntime
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from support.untrained_task import export_table

from seqclf.bundle.triton import write_triton
from seqclf.errors import InputError

KINDS = ["events", "text", "position", "visits", "card"]
FieldProto = descriptor_pb2.FieldDescriptorProto
# The part of Triton's model_config.proto that the config uses, with its numbers.
# https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
TYPES = {"TYPE_INVALID": 0, "TYPE_INT64": 9, "TYPE_FP32": 11}
ONNX_TYPES = {"tensor(int64)": 9, "tensor(float)": 11}
TENSOR = [("name", 1, "STRING", ""), ("data_type", 2, "ENUM", ".t.DataType")]
MESSAGES = {
    "Input": [*TENSOR, ("dims", 4, "INT64", "*")],
    "Output": [*TENSOR, ("dims", 3, "INT64", "*")],
    "Config": [
        ("name", 1, "STRING", ""),
        ("max_batch_size", 4, "INT32", ""),
        ("backend", 17, "STRING", ""),
        ("input", 5, "MESSAGE", "*.t.Input"),
        ("output", 6, "MESSAGE", "*.t.Output"),
    ],
}


@pytest.fixture(scope="module")
def parse():
    """Function that parses a config.pbtxt as Triton does: an unknown name or a wrong type is an error."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    values = file.enum_type.add(name="DataType").value
    for name, number in TYPES.items():
        values.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = FieldProto.LABEL_REPEATED if of.startswith("*") else FieldProto.LABEL_OPTIONAL
            added = described.field.add(name=field, number=number, type=f"TYPE_{kind}", label=label)
            if kind in ("ENUM", "MESSAGE"):
                added.type_name = of.removeprefix("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Config"))
    return lambda text: text_format.Parse(text, kind())


def assert_tensors(listed, expected):
    found = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in listed}
    axes = {entry.name: [size if isinstance(size, int) else -1 for size in entry.shape] for entry in expected}
    assert found == {entry.name: (ONNX_TYPES[entry.type], axes[entry.name]) for entry in expected}
    assert len(listed) == len(expected) and math.prod(map(len, found)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_config_has_the_inputs_and_outputs_of_the_model(exported, parse, tmp_path, kind):
    folder = tmp_path / "repository" / f"of_{kind}"
    write_triton(exported(kind).folder, folder)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == [
        "1",
        "1/model.onnx",
        "config.pbtxt",
    ]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert (folder / "1/model.onnx").read_bytes() == (exported(kind).folder / "model.onnx").read_bytes()
    config = parse((folder / "config.pbtxt").read_text())
    assert (config.name, config.backend, config.max_batch_size) == (folder.name, "onnxruntime", 0)
    session = onnxruntime.InferenceSession(folder / "1/model.onnx", providers=["CPUExecutionProvider"])
    assert_tensors(config.input, session.get_inputs())
    assert_tensors(config.output, session.get_outputs())
    assert {"lengths"} < {tensor.name for tensor in config.input}
    assert list(config.output[0].dims) == [-1, 3]


def test_static_fields_have_no_time_axis_and_names_of_any_language_are_kept(parse, tmp_path):
    rows = {"größe": [[1.0], [2.0, 3.0]] * 9, "land": ["de", "fr"] * 9, "label": ["x", "y"] * 9}
    export_table(tmp_path, rows, fields={"größe": "number"}, static={"land": "category"})
    write_triton(tmp_path / "bundle", tmp_path / "model")
    config = parse((tmp_path / "model/config.pbtxt").read_text(encoding="utf-8"))
    assert {entry.name: list(entry.dims) for entry in config.input} == {
        "größe": [-1, -1, 1],
        "land": [-1],
        "lengths": [-1],
    }


def test_a_folder_with_files_and_a_damaged_bundle_write_nothing(exported, copy_bundle, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_triton(exported("events").folder, folder)
    with pytest.raises(InputError, match="exists; name a new folder, REPOSITORY/MODEL"):
        write_triton(exported("events").folder, folder)
    damaged = copy_bundle("events")
    (damaged / "model.onnx").write_bytes(b"other")
    with pytest.raises(InputError, match=r"model\.onnx has changed since the export"):
        write_triton(damaged, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (["triton={folder}"], None),
        ([], "checkpoint is missing; give RUN/model.ckpt, or triton=REPOSITORY/MODEL"),
        (
            ["triton={folder}", "checkpoint={bundle}/../saved.ckpt"],
            "is written from a bundle; export the checkpoint first",
        ),
    ],
)
def test_the_command_writes_the_folder_of_an_existing_bundle(exported, parse, tmp_path, settings, error):
    bundle, folder = exported("events").folder, tmp_path / "repository" / "events"
    torch.save({}, bundle.parent / "saved.ckpt")
    given = [setting.format(bundle=bundle, folder=folder) for setting in settings]
    command = [sys.executable, "-m", "seqclf.export", f"bundle={bundle}", *given]
    done = subprocess.run(command, capture_output=True, text=True)
    if error is None:
        assert json.loads(done.stdout) == {"bundle": str(bundle), "triton": str(folder)}, done.stderr
        assert parse((folder / "config.pbtxt").read_text()).name == "events"
    else:
        assert done.returncode == 2 and error in done.stderr and not folder.exists()
