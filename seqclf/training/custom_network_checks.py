"""Checks of a network and a loss with code of another package, before the first epoch.

The tests of this package show for its own networks that they export, and that the logits of a sequence do not depend on
the batch that it is in. Both are easily lost, and without these checks would only show after the training or never.
Logits or costs of a wrong shape would end the first step in an error that names neither.
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

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import is_foreign, targets
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError, first_line
from seqclf.models.network import as_network
from seqclf.models.onnx.export import example_inputs, export_onnx
from seqclf.models.parity_grid import TOLERANCE, grid, logit_error
from seqclf.training.missing_weights import REMEDY as MISSING_REMEDY
from seqclf.training.missing_weights import missing_phrase
from seqclf.training.module import SequenceTask

# Checks of a network of another package before it is trained: its logits, its export, and that it ignores padding.

REMEDY = "give the module that differs an onnx_form (see docs/extending.md), or set export=false"
SEED = 0
NOT_FINITE = (
    "give one for each length from 1: keep an output, as by (lengths + 1) // 2, and divide by no length less one"
)
# Tokens beyond those of the shortest sequence. One has no more, and none reaches the padded width.
MORE_TOKENS, PADDED_WIDTH = (10, 0, 4, 7), 13


def check_logits(
    network: nn.Module, fields: Sequence[FieldSpec], num_classes: int, key: str = "model", shortest: int = 1
) -> None:
    """Raise InputError, which begins with `key`, unless `network` returns floating-point logits (B, `num_classes`).

    `shortest`: tokens of the shortest sequence that is tried.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> check_logits(Mean(), [{"name": "x", "kind": "number", "width": 2}], num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model: returns a tensor (4, 2) of float32 for 4 sequences; return logits (4, 3)
    """
    inputs = _padded_batch(fields, shortest)
    logits = _run(network, inputs, key)
    shape = (len(inputs["lengths"]), num_classes)
    if not isinstance(logits, torch.Tensor) or logits.shape != shape or not logits.is_floating_point():
        raise InputError(key, f"returns {describe_value(logits)} for {shape[0]} sequences", f"return logits {shape}")


def check_exportable(network: nn.Module, fields: Sequence[FieldSpec], key: str, shortest: int = 1) -> None:
    """Raise InputError, which begins with `key`, unless `network` exports to ONNX with the same logits.

    Both are compared on the grid of shapes on which a bundle is compared, which has sequences of one token. `shortest`:
    tokens of the shortest sequence of the data, for the error line of a network that needs more than one.
    """
    with tempfile.TemporaryDirectory(prefix="seqclf-export-") as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(network, fields, path, key)
        session = _open(path, key)
        generator = np.random.default_rng(SEED)
        for cell, lengths, time in grid(generator):
            inputs = example_inputs(fields, lengths, time, generator)
            shape = f"{len(lengths)} sequences of up to {time} tokens ({cell})"
            try:
                expected = _finite_logits(network, inputs, key)
            except InputError as error:
                if lengths.min() >= shortest:
                    raise
                remedy = (
                    f"the data has at least {shortest} tokens a sequence, but an exported network takes any number: "
                    "pad shorter sequences in forward, or set export=false"
                )
                raise error.within(None, remedy) from error
            try:
                logits = session.run(["logits"], inputs)[0]
            except Exception as error:  # ONNX Runtime's exceptions have no common base class
                raise InputError(key, f"the exported network fails on {shape}: {first_line(error)}", REMEDY) from error
            if logits.shape != expected.shape or logit_error(logits, expected) > TOLERANCE:
                raise InputError(key, f"the exported network has other logits on {shape}", REMEDY)


def padding_error(network: nn.Module, fields: Sequence[FieldSpec], key: str = "model", shortest: int = 1) -> float:
    """Return how far the logits of a sequence depend on padding and batch mates: 0 up to rounding, if they do not.

    It is the largest difference of a logit of a sequence in a padded batch from that of the same sequence alone, over
    the largest logit where that exceeds 1. Padding holds random values. `shortest`: tokens of the shortest sequence
    that is tried. Raises InputError, which begins with `key`, if the network fails on such a batch, or if the logits of
    a sequence alone are not finite.

    >>> class Mean(nn.Module):
    ...     def forward(self, fields, lengths, host_lengths):
    ...         return fields["x"].mean(dim=1)
    >>> padding_error(Mean(), [{"name": "x", "kind": "number", "width": 2}]) > 0.1
    True
    """
    inputs = _padded_batch(fields, shortest)
    together = _array(_run(network, inputs, key))
    errors = []
    for row, length in enumerate(inputs["lengths"]):
        alone = {name: values[row : row + 1] for name, values in inputs.items()}
        alone = {name: values if name == "lengths" else values[:, :length] for name, values in alone.items()}
        errors.append(logit_error(_finite_logits(network, alone, key)[0], together[row]))
    return max(errors)


def describe_value(value: Any) -> str:
    """Return a phrase for what a network or a loss returned.

    >>> describe_value(torch.zeros(4, 1)), describe_value([])
    ('a tensor (4, 1) of float32', 'a list')
    """
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def _padded_batch(fields: Sequence[FieldSpec], shortest: int) -> dict[str, np.ndarray]:
    lengths = shortest + np.array(MORE_TOKENS)
    return example_inputs(fields, lengths, shortest + PADDED_WIDTH, np.random.default_rng(SEED))


def _finite_logits(network: nn.Module, inputs: dict[str, np.ndarray], key: str) -> np.ndarray:
    logits = _array(_run(network, inputs, key))
    broken = inputs["lengths"][~np.isfinite(logits).all(axis=-1)]
    if len(broken):
        length = f"{broken[0]} token{'s' if broken[0] > 1 else ''}"
        raise InputError(key, f"the logits of a sequence of {length} are not finite", NOT_FINITE)
    return logits


def _array(logits: torch.Tensor) -> np.ndarray:
    return logits.float().numpy()  # NumPy has no bfloat16


def _run(network: nn.Module, inputs: dict[str, np.ndarray], key: str) -> Any:
    """Run a network in evaluation mode, and leave it in the mode that it had."""
    lengths = inputs["lengths"]
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    modes = {module: module.training for module in network.modules()}
    try:
        with torch.no_grad():
            return network.eval()(fields, torch.from_numpy(lengths), lengths)
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
        shape = f"{len(lengths)} sequences of {', '.join(map(str, lengths))} tokens"
        raise InputError(key, f"fails on {shape} ({type(error).__name__}: {first_line(error)})") from error
    finally:
        for module, training in modes.items():
            module.training = training


def _open(path: Path, key: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a failure becomes the error line, so nothing else is printed
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(key, f"the exported network cannot be loaded: {first_line(error)}", REMEDY) from error


# Of a validation loss, beside numerics: of half precision, which trains, and of the full one, which evaluates.
MAX_LOSS_CHANGE, LOSS_ROUNDING = 0.1, 0.02  # relative, and absolute


@torch.inference_mode()
def check_reloaded(
    task: SequenceTask, trained: SequenceTask, batches: SequenceDataModule, losses: Mapping[int, float]
) -> None:
    """Raise InputError if a custom network has another validation loss than when its checkpoint was written.

    Its checkpoint then lacks a part of what was trained. `task`: loaded from the checkpoint. `trained`: the task that
    was trained, for the names of what is missing. `losses`: validation losses by optimizer step. Networks of this
    package, and steps that were not validated, are not checked.
    """
    foreign = _foreign_targets(task.hparams["model"], "model")
    recorded = losses.get(task.trained_steps)
    if not foreign or recorded is None:
        return
    cost, rows = 0.0, 0
    for batch in batches.evaluation_loader("validation"):
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        logits = task.logits_of(batch._replace(fields=fields, lengths=batch.lengths.to(task.device)))
        # By batch, as it was recorded: a loss of PyTorch with class weights depends on the batches.
        cost += float(task.loss(logits, batch.labels.to(task.device))) * len(batch.ids)
        rows += len(batch.ids)
    if not abs(cost / rows - recorded) <= LOSS_ROUNDING + MAX_LOSS_CHANGE * abs(recorded):  # NaN is no such number
        raise InputError(
            foreign[0],
            f"its validation loss was {recorded:.3g} in training and is {cost / rows:.3g} once its checkpoint is "
            f"loaded: {missing_phrase(trained.model)}",
            f"{MISSING_REMEDY}; keep other state in buffers",
        )


MAX_LOGIT_ERROR = 1e-4  # of logits; the rounding errors of another order of summation are a hundred times smaller


def check_foreign_network(task: SequenceTask, export: bool, shortest: int = 1) -> list[str]:
    """Return warnings about the network of a task, none if all of its code is of this package.

    Raises InputError, which names the class, unless its logits are (B, C) and the loss makes one number of them.
    `export`: raise it, with what to do, unless the network can be exported too. `shortest`: tokens of the shortest
    sequence of the data.
    """
    hyper: Mapping[str, Any] = task.hparams
    if foreign := _foreign_targets(hyper["loss"], "loss"):
        check_loss(task.loss, len(task.classes), foreign[0])
    foreign = _foreign_targets(hyper["model"], "model")
    if not foreign:
        return []
    network = as_network(task.model).independent_parts()[0]
    fields = hyper["dataset"]["fields"]
    # First, because it runs the network as training will: an error in its code is no failure of the export.
    check_logits(network, fields, len(task.classes), foreign[0], shortest)
    error = padding_error(network, fields, foreign[0], shortest)
    if export:
        check_exportable(network, fields, foreign[0], shortest)
    if error <= MAX_LOGIT_ERROR:
        return []
    return [
        f"{foreign[0]}: the logits of a sequence change by up to {error:.1g} with its padding and batch mates, so its "
        "prediction depends on the rows that are scored with it; let the network read no token beyond lengths"
    ]


def check_loss(loss: nn.Module, num_classes: int, key: str = "loss") -> None:
    """Raise InputError, which begins with `key`, unless `loss` turns logits (B, C) and labels (B,) into one cost.

    >>> check_loss(nn.CrossEntropyLoss(), num_classes=3)
    >>> check_loss(nn.CrossEntropyLoss(reduction="none"), num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: loss: returns a tensor (4,) of float32; return the mean cost of the batch, a tensor ()
    """
    rows = num_classes + 1  # not the same, else a loss that takes labels for logits could pass
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, num_classes, generator=generator, requires_grad=True)
    labels = torch.arange(rows) % num_classes
    state = copy.deepcopy(loss.state_dict())  # a loss may keep statistics of the logits that it gets
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes, of a loss that then fails
            cost = loss(logits, labels)
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
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
