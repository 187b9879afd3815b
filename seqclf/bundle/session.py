"""Sessions of ONNX Runtime that run the model of a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from seqclf.data.encoding.field_spec import FieldSpec, input_axes, input_type
from seqclf.errors import InputError, first_line


def open_session(path: Path, device: str = "auto", threads: int | None = None) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session.

    `device`: cpu, cuda, or auto, which is CUDA where there is an NVIDIA device. `threads`: None for one per core.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device}: must be auto, cpu or cuda")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InputError(f"threads={threads}: must be a whole number of at least 1, or null")
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and Path("/dev/nvidiactl").exists()
    if device == "cuda" and not has_cuda:
        raise InputError("device=cuda: no NVIDIA device or no onnxruntime-gpu here; set device=cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0  # 0: a thread per core
    # Spinning threads take the cores from reading and encoding, and from PyTorch where both run in one process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    use_cuda = has_cuda and device != "cpu"
    providers = ["CUDAExecutionProvider"] if use_cuda else []
    if use_cuda:
        onnxruntime.preload_dlls()
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(f"{path}: cannot be loaded ({first_line(error)}); export the bundle anew") from None


def check_model(session: onnxruntime.InferenceSession, specs: list[FieldSpec], classes: int) -> None:
    """Raise InputError unless the model takes what the encoders give and returns a logit for each class."""
    expected: dict[str, tuple[str, int]] = {"lengths": ("tensor(int64)", 1)}
    for spec in specs:
        kind = "tensor(float)" if input_type(spec) is np.float32 else "tensor(int64)"
        expected[spec["name"]] = (kind, len(input_axes(spec)))
    inputs = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    if inputs != expected:
        raise InputError(f"takes the inputs {', '.join(sorted(inputs))}, not {', '.join(sorted(expected))} as encoded")
    shapes = {entry.name: entry.shape for entry in session.get_inputs()}
    for spec in specs:
        width = input_axes(spec)[-1]
        if isinstance(width, int) and shapes[spec["name"]][-1] != width:
            raise InputError(f"takes {shapes[spec['name']][-1]} channels of {spec['name']}, its encoder gives {width}")
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(f"does not return logits of {classes} classes")
