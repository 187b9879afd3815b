"""Checks of networks of other packages: logits of the right shape, without padding, from saved weights, and in ONNX.

A network of one's own easily lacks one of these, which would be found after the training, or never.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn

from seqclf.config.build import is_foreign, targets
from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.errors import InputError, first_line
from seqclf.models.ensemble import build_classifier
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.checks import TOLERANCE, USE_MASKED, grid, logit_error
from seqclf.models.onnx.exporter import example_inputs, export_onnx
from seqclf.system.atomic_files import scratch_folder
from seqclf.training.task import SequenceTask

Inputs = Mapping[str, np.ndarray]  # dict name of a field → values, and `lengths` → lengths (B,)

MAX_LOGIT_ERROR = 1e-4  # largest accepted `padding_error`; rounding errors are a hundred times smaller
NO_PADDING = "let it read no token beyond lengths"
REMEDY = "give the module that differs an onnx_form (see docs/extending.md), or set export=false"
SEED = 0
RELOAD_SEED = 0x9E3779B1  # not that of a run, so that new weights differ from those of the network
# Tokens of the sequences of a batch beyond those of the shortest one, and its padded width beyond them.
MORE_TOKENS, PADDED_WIDTH = (10, 0, 4, 7), 13


def check_foreign_network(task: SequenceTask, export: bool, shortest: int = 1) -> None:
    """Check the network of a task before its training, if it is not of this package, or raise InputError.

    `export`: True to check also that it exports to ONNX. `shortest`: tokens of the shortest sequence in the data.
    """
    if foreign := _foreign_target(task):
        network, fields = task.model, task.hparams["dataset"]["fields"]
        shortest = 1 if export else shortest
        check_logits(network, fields, len(task.classes), foreign, shortest)
        require_padding_ignored(network, fields, foreign, shortest)
        _check_reloaded(task, network, fields, foreign, shortest)
        if export:
            check_exportable(network, fields, foreign)


def check_trained_network(task: SequenceTask) -> None:
    """Raise InputError if the network has learned to read padding, which first weights of 0 may hide."""
    if foreign := _foreign_target(task):
        model = copy.deepcopy(task.model).cpu().float()
        require_padding_ignored(model, task.hparams["dataset"]["fields"], foreign)


def _foreign_target(task: SequenceTask) -> str | None:
    found = targets(task.hparams["model"], "model")
    return next((f"{name}={target}" for name, target in found if is_foreign(target)), None)


def check_logits(
    network: nn.Module, fields: Sequence[FieldSpec], num_classes: int, key: str = "model", shortest: int = 1
) -> None:
    """Raise InputError, with the config `key`, unless `network` returns floating-point logits (B, `num_classes`).

    `shortest`: number of tokens of the shortest sequence in the batch.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> check_logits(Mean(), [{"name": "x", "kind": "number", "width": 2}], num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model: returns a tensor (4, 2) of float32 for 4 sequences; return logits (4, 3)
    """
    logits = _run(network, padded_batch(fields, shortest), key)
    shape = (len(MORE_TOKENS), num_classes)
    if isinstance(logits, torch.Tensor) and logits.shape == shape and logits.is_floating_point():
        return
    returned = f"a {type(logits).__name__}"
    if isinstance(logits, torch.Tensor):
        returned = f"a tensor {tuple(logits.shape)} of {str(logits.dtype).removeprefix('torch.')}"
    raise InputError(key, f"returns {returned} for {shape[0]} sequences", f"return logits {shape}")


def padding_error(network: nn.Module, fields: Sequence[FieldSpec], key: str = "model", shortest: int = 1) -> float:
    """Return the largest change of a logit by padding, of random values, and by the other sequences of a batch.

    Each sequence of a padded batch is also run alone. The change is divided by the largest logit if that exceeds 1.
    Raises InputError if the network fails, or if logits are not finite.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> padding_error(Mean(), [{"name": "x", "kind": "number", "width": 2}]) > 0.1
    True
    """
    batch = padded_batch(fields, shortest)
    together = _run(network, batch, key).float().numpy()  # NumPy has no bfloat16
    without_tokens = {"lengths", *(spec["name"] for spec in static_specs(fields))}
    errors = []
    for row, length in enumerate(batch["lengths"]):
        alone = {name: values[row : row + 1] for name, values in batch.items()}
        alone |= {name: values[:, :length] for name, values in alone.items() if name not in without_tokens}
        logits = _run(network, alone, key).float().numpy()[0]
        if not np.isfinite(logits).all():
            raise InputError(key, f"the logits of a sequence of {length} tokens are not finite")
        errors.append(logit_error(logits, together[row]))
    return max(errors)


def require_padding_ignored(network: nn.Module, fields: Sequence[FieldSpec], key: str, shortest: int = 1) -> None:
    """Raise InputError if a network reads padding, or is random in evaluation mode. `key`, `shortest`: see above."""
    error = padding_error(network, fields, key, shortest)
    if error <= MAX_LOGIT_ERROR:
        return
    plain = {type(module).__name__ for module in network.modules() if isinstance(module, nn.RNNBase)}
    problem = (
        f"the logits of a sequence change by up to {error:.2g} with its padding and batch mates, so its prediction "
        "depends on the rows that are scored with it, or on chance"
    )
    raise InputError(key, problem, f"{NO_PADDING}; for nn.{min(plain)}, {USE_MASKED}" if plain else NO_PADDING)


def _check_reloaded(
    task: SequenceTask, network: nn.Module, fields: Sequence[FieldSpec], key: str, shortest: int
) -> None:
    """Raise InputError if a checkpoint misses weights: PyTorch registers no module or parameter of a plain list."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(RELOAD_SEED)
        loaded = build_classifier(task.hparams["model"], fields, len(task.classes))
    loaded.load_state_dict(network.state_dict())
    logits, again = (_run(each, padded_batch(fields, shortest), key).float().numpy() for each in (network, loaded))
    if logit_error(logits, again) > TOLERANCE:
        problem = "a new network with its saved weights has other logits: a checkpoint misses weights"
        raise InputError(key, problem, "put modules into torch.nn.ModuleList or ModuleDict, all else into buffers")


def check_exportable(network: SequenceNetwork, fields: Sequence[FieldSpec], key: str) -> None:
    """Raise InputError, with the config `key`, unless `network` keeps its logits in ONNX on the parity grid."""
    with scratch_folder(Path(tempfile.gettempdir()), "export-") as folder:
        path = folder / "model.onnx"
        export_onnx(network, fields, path, key)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # show fatal errors only, because the InputError below reports a failure
        options.intra_op_num_threads = 1
        generator, session = np.random.default_rng(SEED), None
        for cell, lengths, time in grid(generator):
            inputs = example_inputs(fields, lengths, time, generator)
            shape = f"{len(lengths)} sequences of up to {time} tokens ({cell})"
            expected = _run(network, inputs, key).float().numpy()
            try:
                session = session or onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
                logits = session.run(["logits"], inputs)[0]
            except Exception as error:  # ONNX Runtime's exceptions have no common base class
                raise InputError(key, f"the exported network fails on {shape}: {first_line(error)}", REMEDY) from error
            if logits.shape != expected.shape or logit_error(logits, expected) > TOLERANCE:
                raise InputError(key, f"the exported network has other logits on {shape}", REMEDY)


def padded_batch(fields: Sequence[FieldSpec], shortest: int) -> dict[str, np.ndarray]:
    lengths = shortest + np.array(MORE_TOKENS)
    return example_inputs(fields, lengths, shortest + PADDED_WIDTH, np.random.default_rng(SEED))


def _run(network: nn.Module, inputs: Inputs, key: str) -> Any:
    lengths = inputs["lengths"]
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    modes = {module: module.training for module in network.modules()}
    try:
        with torch.no_grad():
            return network.eval()(fields, torch.from_numpy(lengths), lengths)
    except InputError:
        raise
    except Exception as error:  # code of others may raise any exception
        shape = f"{len(lengths)} sequences of {', '.join(map(str, lengths))} tokens"
        raise InputError(key, f"fails on {shape} ({type(error).__name__}: {first_line(error)})") from error
    finally:
        for module, training in modes.items():
            module.training = training
