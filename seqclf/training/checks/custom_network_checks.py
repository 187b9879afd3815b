"""Checks of third-party networks and losses before the first epoch.

Tests ensure three properties of the networks of this package: they export to ONNX, their checkpoints hold all weights,
and the logits of a sequence do not depend on the other sequences of its batch. A third-party network can easily lack
one of these properties. Without these checks, such a fault would be found only after training, or never. Logits or
costs of a wrong shape would end the first optimizer step with an error that names neither the network nor the loss.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from seqclf.config.targets import is_foreign, targets
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError, first_line
from seqclf.models.ensemble import build_classifier
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.export import example_inputs, export_onnx
from seqclf.models.parity_grid import TOLERANCE, grid, logit_error
from seqclf.system.atomic_files import scratch_folder
from seqclf.training.checks.padding_probe import (
    finite_logits,
    padded_batch,
    require_padding_ignored,
    run_network,
)
from seqclf.training.module import SequenceTask

REMEDY = "give the module that differs an onnx_form (see docs/extending.md), or set export=false"
SEED = 0
# Not the seed of a run, so that the weights differ before they are loaded. The generator reads 32 bits of a seed.
RELOAD_SEED = 0x9E3779B1


def check_logits(
    network: nn.Module, fields: Sequence[FieldSpec], num_classes: int, key: str = "model", shortest: int = 1
) -> None:
    """Raise InputError unless `network` returns floating-point logits (B, `num_classes`).

    `key`: config key at the start of the error. `shortest`: number of tokens of the shortest sequence in the test
    batch.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> check_logits(Mean(), [{"name": "x", "kind": "number", "width": 2}], num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model: returns a tensor (4, 2) of float32 for 4 sequences; return logits (4, 3)
    """
    inputs = padded_batch(fields, shortest)
    logits = run_network(network, inputs, key)
    shape = (len(inputs["lengths"]), num_classes)
    if not isinstance(logits, torch.Tensor) or logits.shape != shape or not logits.is_floating_point():
        raise InputError(key, f"returns {describe_value(logits)} for {shape[0]} sequences", f"return logits {shape}")


def check_exportable(network: SequenceNetwork, fields: Sequence[FieldSpec], key: str, shortest: int = 1) -> None:
    """Raise InputError unless `network` exports to ONNX and the exported network returns the same logits.

    `key`: config key at the start of the error. The logits are compared on the grid of input shapes that is also used
    to check a bundle. The grid includes sequences of one token. `shortest`: number of tokens of the shortest sequence
    in the data. If the network fails on shorter sequences, the error names this number.
    """
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
            try:
                expected = finite_logits(network, inputs, key)
            except InputError as error:
                if lengths.min() >= shortest:
                    raise
                remedy = (
                    f"the data has at least {shortest} tokens a sequence, but an exported network takes any number: "
                    "pad shorter sequences in forward, or set export=false"
                )
                raise error.within(None, remedy) from error
            try:
                session = session or onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
                logits = session.run(["logits"], inputs)[0]
            except Exception as error:  # ONNX Runtime's exceptions have no common base class
                raise InputError(key, f"the exported network fails on {shape}: {first_line(error)}", REMEDY) from error
            if logits.shape != expected.shape or logit_error(logits, expected) > TOLERANCE:
                raise InputError(key, f"the exported network has other logits on {shape}", REMEDY)


def describe_value(value: Any) -> str:
    """Return a short description of a value that a network or a loss returned.

    >>> describe_value(torch.zeros(4, 1)), describe_value([])
    ('a tensor (4, 1) of float32', 'a list')
    """
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def check_reloaded(task: SequenceTask, key: str, shortest: int) -> None:
    """Raise InputError unless a new network that loads the weights of a task returns the same logits.

    Else a checkpoint misses some of the weights, as PyTorch registers no module or parameter of a plain list, tuple or
    dict. `key`: config key at the start of the error. `shortest`: see `check_logits`.
    """
    network, fields = task.model.independent_parts()[0], task.hparams["dataset"]["fields"]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(RELOAD_SEED)
        loaded = build_classifier({**task.hparams["model"], "members": 1}, fields, len(task.classes))
    loaded.load_state_dict(network.state_dict())
    inputs = padded_batch(fields, shortest)
    logits, again = (run_network(each, inputs, key).float().numpy() for each in (network, loaded))
    if logit_error(logits, again) > TOLERANCE:
        raise InputError(
            key,
            "a new network with its saved weights has other logits: a checkpoint misses weights or other state",
            "put modules into torch.nn.ModuleList or ModuleDict, parameters into ParameterList, all else into buffers",
        )


def check_foreign_network(task: SequenceTask, export: bool, shortest: int = 1) -> None:
    """Check the third-party network and the third-party loss of a task.

    Networks of this package are not checked.

    Args:
        task: task before its training.
        export: True to check also that the network exports to ONNX.
        shortest: number of tokens of the shortest sequence in the data.

    Raises:
        InputError: the network does not return logits (B, C), the loss is not a single number, the logits depend on
            padding, a checkpoint would miss weights, or the network cannot be exported. The error names the class of
            the network or the loss.
    """
    hyper: Mapping[str, Any] = task.hparams
    if foreign := _foreign_targets(hyper["loss"], "loss"):
        check_loss(task.loss, len(task.classes), foreign[0])
    foreign = _foreign_targets(hyper["model"], "model")
    if not foreign:
        return
    network = task.model.independent_parts()[0]
    fields = hyper["dataset"]["fields"]
    # Run `check_logits` first, so that an error in the code of the network is not reported as a failed export.
    check_logits(network, fields, len(task.classes), foreign[0], shortest)
    # This error comes before a failed export, because the remedy against it changes what is exported.
    require_padding_ignored(network, fields, foreign[0], 1 if export else shortest)
    check_reloaded(task, foreign[0], shortest)
    if export:
        check_exportable(network, fields, foreign[0], shortest)


def check_trained_network(task: SequenceTask) -> None:
    """Raise InputError if the third-party network of a trained task has learned to read padding.

    The first weights may hide that, such as a weight that starts at 0. An ensemble is checked as a whole.
    """
    hyper: Mapping[str, Any] = task.hparams
    if foreign := _foreign_targets(hyper["model"], "model"):
        model = copy.deepcopy(task.model).cpu().float()
        require_padding_ignored(model, hyper["dataset"]["fields"], foreign[0])


def check_loss(loss: nn.Module, num_classes: int, key: str = "loss") -> None:
    """Raise InputError unless `loss` maps logits (B, C) and labels (B,) to a scalar cost.

    `key`: config key at the start of the error.

    >>> check_loss(nn.CrossEntropyLoss(), num_classes=3)
    >>> check_loss(nn.CrossEntropyLoss(reduction="none"), num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: loss: returns a tensor (4,) of float32; return the mean cost of the batch, a tensor ()
    """
    rows = num_classes + 1  # differs from `num_classes`, so that a loss that swaps the two axes fails
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, num_classes, generator=generator, requires_grad=True)
    labels = torch.arange(rows) % num_classes
    state = copy.deepcopy(loss.state_dict())  # a loss may update statistics in its state
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hide size warnings of a loss that fails afterwards
            cost = loss(logits, labels)
    except InputError:
        raise
    except Exception as error:  # third-party code may raise any exception
        shapes = f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}"
        raise InputError(
            key,
            f"fails on {shapes} ({type(error).__name__}: {first_line(error)})",
            "name a loss of logits and class indices, as torch.nn.CrossEntropyLoss is",
        ) from error
    finally:
        loss.load_state_dict(state)
    if not isinstance(cost, Tensor) or cost.dim() != 0 or not cost.is_floating_point():
        raise InputError(key, f"returns {describe_value(cost)}", "return the mean cost of the batch, a tensor ()")
    if not cost.requires_grad:
        raise InputError(key, "returns a cost without a gradient", "compute it by differentiable operations of logits")


def _foreign_targets(settings: Any, key: str) -> list[str]:
    return [f"{name}={target}" for name, target in targets(settings, key) if is_foreign(target)]
