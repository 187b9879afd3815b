"""Model folder of a bundle for NVIDIA's Triton Inference Server."""

from __future__ import annotations

import json
from pathlib import Path

from seqclf.bundle.manifest import MODEL, read_bundle
from seqclf.bundle.session import ModelSession, open_session
from seqclf.errors import InputError
from seqclf.system.atomic_files import explain_disk_errors, scratch_folder

DATA_TYPES = {"tensor(int64)": "TYPE_INT64", "tensor(float)": "TYPE_FP32"}


def write_triton(bundle: Path, folder: Path) -> None:
    """Write config.pbtxt and 1/model.onnx into the new folder REPOSITORY/MODEL. Raises InputError if it has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"triton={folder}", "exists", "name a new folder, REPOSITORY/MODEL")
    content = read_bundle(bundle)[1][MODEL]
    config = triton_config(folder.absolute().name, open_session(bundle / MODEL, "cpu", content=content))
    with explain_disk_errors(folder), scratch_folder(folder.absolute().parent, ".triton-") as work:
        (work / "model" / "1").mkdir(parents=True)
        (work / "model" / "1" / MODEL).write_bytes(content)
        (work / "model" / "config.pbtxt").write_text(config, encoding="utf-8")
        (work / "model").replace(folder)


def triton_config(name: str, session: ModelSession) -> str:
    """Return the text of config.pbtxt for the model `name`.

    `max_batch_size` is 0, so that `dims` has every axis and Triton joins no requests, whose lengths it could not pad.
    """
    lines = [f"name: {json.dumps(name, ensure_ascii=False)}", 'backend: "onnxruntime"', "max_batch_size: 0"]
    for key, tensors in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for tensor in tensors:
            quoted, data_type = json.dumps(tensor.name, ensure_ascii=False), DATA_TYPES[tensor.type]
            dims = ", ".join(str(size if isinstance(size, int) else -1) for size in tensor.shape)
            lines.append(f"{key} {{ name: {quoted} data_type: {data_type} dims: [ {dims} ] }}")
    return "\n".join(lines) + "\n"
