"""Reading a checkpoint of any origin as data: nothing it names is imported, built or written before it was checked."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from seqclf.config.targets import Trust, package_of, require_trusted, targets
from seqclf.data.field_spec import COMBINATIONS, INPUT_KINDS, SIZE_KEYS
from seqclf.errors import InputError
from seqclf.models.ensemble import build_classifier
from seqclf.system.state_validation import COUNT, SIZE, Each, Where, error_context, one_of, require

TARGET = {"_target_": str}
ENCODED = {"name": str, "kind": one_of(*INPUT_KINDS)}
SHAPE = {
    "hyper_parameters": {
        "dataset": {
            "classes": Where([str], lambda classes: len(set(classes)) == len(classes) > 0, "a list of different texts"),
            "positive": (str, None),
            "class_counts": [COUNT],
            "fields": Where([ENCODED], lambda fields: len(fields) > 0, "a list of one field or more"),
        },
        "model": {**TARGET, "members": SIZE},
        "loss": TARGET,
        "optimizer": TARGET,
        "monitor": str,
        "seed": int,
    },
    "state_dict": Each(Where(Tensor, lambda value: value.layout == torch.strided, "a dense tensor")),
    "global_step": COUNT,
    "epoch": COUNT,
}
TRUSTED = {"model": ("seqclf",), "loss": ("seqclf", "torch.nn")}  # packages whose code a checkpoint may always name
REPEATED = ("members", "layers")  # settings that repeat a part of the network, each time with weights


def read_checkpoint(path: Any) -> Mapping[str, Any]:
    """Return the content of a checkpoint. Raises InputError unless it is a checkpoint of this package."""
    refused = InputError(f"checkpoint={path}", "is not a seqclf checkpoint", "give RUN/checkpoints/best.ckpt")
    if not Path(path).exists():
        raise InputError(f"checkpoint={path}", "no such file")
    if not Path(path).is_file() or not _is_plain_archive(Path(path)):
        raise refused
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # the unpickler may raise anything on a file that is no checkpoint
        state = None
    hyper = state.get("hyper_parameters") if isinstance(state, dict) else None
    if not isinstance(hyper, dict) or "dataset" not in hyper:
        raise refused
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train again, or choose another"):
        require(state, SHAPE)
        require(hyper.get("frozen", []), [str], "hyper_parameters.frozen")  # older checkpoints have none
        _check_settings(hyper, len(state["state_dict"]))
    return state


def _is_plain_archive(path: Path) -> bool:
    """Return True for a zip archive as `torch.save` writes it: uncompressed, so no larger in memory than on disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        return stored and sum(entry.file_size for entry in entries) <= path.stat().st_size
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


def _check_settings(hyper: Mapping[str, Any], tensors: int) -> None:
    try:
        # Settings end up in the manifest, which is JSON: a tensor among them would fail only there.
        json.dumps(hyper)
    except (TypeError, ValueError, RecursionError):
        raise InputError("hyper_parameters", "must be plain texts, numbers and lists") from None
    counts, classes = hyper["dataset"]["class_counts"], hyper["dataset"]["classes"]
    if len(counts) != len(classes):
        raise InputError("dataset.class_counts", "must be a number for each class")
    if hyper["dataset"]["positive"] not in (None, *classes):
        raise InputError("dataset.positive", "must be one of its classes")
    for index, field in enumerate(hyper["dataset"]["fields"]):
        if field["kind"] == "parents":
            code = Where(int, lambda code: -1 <= code < len(classes), "a class or -1")
            require(field, {"node_classes": [code]}, f"dataset.fields[{index}]")
            continue
        require(field, {SIZE_KEYS[field["kind"]]: SIZE}, f"dataset.fields[{index}]")
        if field["kind"] == "bag":
            require(field, {"combine": one_of(*COMBINATIONS)}, f"dataset.fields[{index}]")
    encoder = hyper["model"].get("encoder")
    blocks = {"model": hyper["model"], "model.encoder": encoder if isinstance(encoder, dict) else {}}
    for key, block in blocks.items():
        for name in REPEATED:
            if isinstance(block.get(name), int) and block[name] > tensors:
                raise InputError(f"{key}.{name}={block[name]}", "more than the checkpoint has weights")


def check_trusted(hyper: Mapping[str, Any], path: Any, trust: Trust) -> None:
    """Raise unless the model and the loss of a checkpoint are of this package, of PyTorch, or of one in `trust`.

    This is asked of every `_target_` in them: the encoder of a model is code as much as the model is.
    """
    for part, packages in TRUSTED.items():
        for key, target in targets(hyper[part], part):
            require_trusted(f"checkpoint={path}: {key}", target, packages, trust)
            package = package_of(target)
            if not (package in sys.modules or (package and importlib.util.find_spec(package))):
                raise InputError(
                    f"checkpoint={path}: {key}={target}",
                    f"the package {package} is not installed",
                    "install it, or add the folder that holds it to PYTHONPATH",
                )


def check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise unless the weights of a checkpoint have the names and shapes that its settings need."""
    for name, tensor in expected.items():
        if name not in weights:
            raise InputError(None, f"has no weight {name}, which its settings need")
        if weights[name].shape != tensor.shape:
            raise InputError(None, f"weight {name} is {_sizes(weights[name])}, its settings need {_sizes(tensor)}")
    if unknown := sorted(set(weights) - set(expected)):
        raise InputError(None, f"has the weight {unknown[0]}, which its settings do not know")


def check_size(hyper: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Raise unless the network has the size of its weights.

    It is built without memory, because settings that were tampered with may ask for any size.
    """
    dataset = hyper["dataset"]
    with torch.device("meta"):
        network = build_classifier(hyper["model"], dataset["fields"], len(dataset["classes"]))
    expected = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
    check_weights({name: tensor for name, tensor in weights.items() if name.startswith("model.")}, expected)


def _sizes(tensor: Tensor) -> str:
    return " by ".join(map(str, tensor.shape)) or "a number"


# Corrections to Lightning's checkpoints, so that a resumed run equals one that was never interrupted.

GRADIENTS = "accumulated_gradients"
LOGGED = "logged_values"


def finish_progress(checkpoint: dict[str, Any]) -> None:
    """Count the batch or the epoch after which a checkpoint was written as completed, in place.

    Lightning writes checkpoints from hooks that it calls before it counts. When it resumes, it skips a validation and
    an end of epoch that were still due, and with `max_steps` ends an epoch twice. Once the batch is counted, they run.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop")
    if loops is None:
        return
    epoch, batch = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    if _lacks_completion(epoch["current"]):
        _complete(epoch)
        # With `max_steps` Lightning would read the counts of the epoch that ended as those of the next one.
        batch["current"] = dict.fromkeys(batch["current"], 0)
        batch["is_last_batch"] = False
    elif _lacks_completion(batch["current"]):
        _complete(batch)
        if GRADIENTS not in checkpoint:
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
        # One validation batch started and none done: a validation that is due after this batch runs from its start.
        validation = loops["epoch_loop.val_loop.batch_progress"]
        validation["current"] = dict.fromkeys(validation["current"], 0)
        validation["total"] |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}


def _lacks_completion(counts: dict[str, int]) -> bool:
    return counts["ready"] == counts["started"] == counts["processed"] == counts["completed"] + 1


def _complete(progress: dict[str, Any]) -> None:
    for counts in (progress["total"], progress["current"]):
        counts |= dict.fromkeys(counts, counts["processed"])


def save_gradients(checkpoint: dict[str, Any], model: nn.Module, trainer: pl.Trainer) -> None:
    """Add the gradients of batches that wait for their optimizer step, as the mean over all ranks."""
    if trainer.fit_loop._should_accumulate():
        checkpoint[GRADIENTS] = {
            name: trainer.strategy.reduce(weight.grad.clone(), reduce_op="mean")
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }


def load_gradients(gradients: dict[str, Tensor], model: nn.Module) -> None:
    """Restore saved gradients. Call it once the weights are on their device."""
    for name, gradient in gradients.items():
        weight = model.get_parameter(name)
        weight.grad = gradient.to(weight)
