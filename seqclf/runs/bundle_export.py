"""Export of a trained task as a bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqclf.bundle import manifest, parity
from seqclf.bundle.parity import Parity
from seqclf.bundle.reference_data import ReferenceData
from seqclf.bundle.session import open_session, require_shape
from seqclf.bundle.step_model import open_step
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import FieldSpec, input_axes
from seqclf.data.storage.dataset import described_encoders
from seqclf.data.write_store import SPLITS
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.models.network import joined_embedding, recorded_embedding
from seqclf.models.onnx.checks import EMBEDDING, grid
from seqclf.models.onnx.exporter import example_inputs, export_onnx, export_step
from seqclf.report.description import card_text
from seqclf.report.reported import Reported
from seqclf.runs.row_outputs import NOT_FINITE, SUBJECT
from seqclf.system import progress
from seqclf.system.atomic_files import exchange, explain_disk_errors, keep_mode, scratch_folder
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import error_context
from seqclf.system.version import package_versions
from seqclf.training.network_checks import check_trained_network
from seqclf.training.task import SequenceTask

PARITY_SEED = 0


def write_bundle(
    task: SequenceTask,
    folder: Path,
    run_metrics: RunResult | Mapping[str, Any],
    recipe: JsonObject | None = None,
    reference: ReferenceData | None = None,
) -> Parity:
    """Export a task to `folder`, and compare its logits with those of PyTorch on random batches of the parity grid.

    `run_metrics`: result of the run, or content of its metrics.json; without any, the bundle predicts the most probable
    label. `recipe`: see `TrainConfig.recipe`. `reference`: None for a bundle that compares no rows with it.
    The folder appears when it is complete, in place of an earlier bundle. Raises InputError if the folder has files but
    is not a bundle.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"bundle={folder}", f"{existing} is not a folder", "name another")
    if existing == folder and not (folder / manifest.NAME).is_file() and any(folder.iterdir()):
        raise InputError(f"bundle={folder}", "exists and is not a bundle", "name another folder")
    dataset = task.hparams["dataset"]
    # A checkpoint and metrics.json may be damaged. Check both before the export, because the export takes long.
    with error_context("the dataset that the checkpoint describes", "it is damaged or of another version; train again"):
        encoders = described_encoders(dataset)
    check_trained_network(task)
    state = run_metrics.to_dict() if isinstance(run_metrics, RunResult) else run_metrics
    content = _manifest_content(task, state)
    if recipe is not None:  # with the resolved label, because a guess on other data may be another label
        content["recipe"] = {**recipe, "data": {**recipe["data"], "positive": dataset["positive"]}}
    if reference is not None:
        content["reference"] = reference.state()
    with error_context("metrics.json of the run", "remove it, and the bundle has no scores"):
        manifest.check_content(content)
        result = run_metrics if isinstance(run_metrics, RunResult) else RunResult.from_dict(state)
    with explain_disk_errors(folder):
        return _write(task, folder, result, encoders, content)


def _write(
    task: SequenceTask, folder: Path, result: RunResult, encoders: Mapping[str, FieldEncoder], content: JsonObject
) -> Parity:
    dataset = task.hparams["dataset"]
    with scratch_folder(folder.parent, ".exporting-") as work:
        target = work / "bundle"
        (target / "encoders").mkdir(parents=True)
        for name, encoder in encoders.items():
            text = json.dumps(encoder.state(), ensure_ascii=False)
            (target / manifest.encoder_file(name)).write_text(text, encoding="utf-8")
        with progress.stage("exporting to ONNX"):
            export_onnx(task.model, dataset["fields"], target / manifest.MODEL)
            step = export_step(task.model, dataset["fields"], target / manifest.STEP)
        if step is not None:
            states = [{**state._asdict(), "shape": list(state.shape)} for state in step.states]
            of_layers = [EMBEDDING] if task.model.embedding_layers() else []
            content["step"] = {"states": states, "outputs": [*step.more_outputs, *of_layers]}
        measured = _check_parity(task, target, content)
        content["parity"] = {"max_error": measured.max_error, "tolerance": measured.tolerance}
        (target / "MODEL_CARD.md").write_text(card_text(Reported(result=result, manifest=content)), encoding="utf-8")
        # The manifest is written last, because it holds the hash of every other file.
        manifest.write_manifest(target, content)
        _replace(target, folder, work / "earlier")
    return measured


def _replace(target: Path, folder: Path, earlier: Path) -> None:
    """Where the system can swap two names atomically, `folder` always holds a complete bundle."""
    keep_mode(folder, target)
    if folder.exists() and exchange(target, folder):
        return
    try:
        if folder.exists():
            folder.replace(earlier)
        target.replace(folder)
    except BaseException:
        if earlier.exists() and not folder.exists():
            earlier.replace(folder)
        raise


def _check_parity(task: SequenceTask, target: Path, content: JsonObject) -> Parity:
    """Compare the exported model with PyTorch, and write `parity.npz` and `parity.json`, or raise InputError."""
    generator = np.random.default_rng(PARITY_SEED)
    arrays: dict[str, np.ndarray] = {}
    # The logits of PyTorch are computed on the CPU in float32, as in the check of a bundle. On a GPU or in bf16, they
    # would differ by more than the tolerance.
    model = task.model.cpu().float().eval()
    cells = list(grid(generator))
    for cell, lengths, time in progress.track(cells, "running PyTorch for the parity check", total=len(cells)):
        inputs, outputs, parts = _parity_cell(model, task.hparams["dataset"]["fields"], lengths, time, generator)
        content[EMBEDDING] = {name: values.shape[1] for name, values in parts.items()}
        logits = outputs["logits"]
        require_shape(SUBJECT, logits, len(lengths), len(content["classes"]))
        if not np.isfinite(logits).all():
            tokens = ", ".join(map(str, lengths))
            problem = f"gives logits that are not finite for sequences of {tokens} tokens"
            raise InputError(SUBJECT, problem, NOT_FINITE)
        arrays |= {f"{cell}/{name}": values for name, values in {**inputs, **outputs}.items()}
    np.savez_compressed(target / "parity.npz", **arrays)  # type: ignore[arg-type]
    with progress.stage("comparing the exported model with PyTorch"):
        fields = task.hparams["dataset"]["fields"]
        step = None if "step" not in content else open_step(target, content, fields, device="cpu")
        result = parity.check(open_session(target / manifest.MODEL, "cpu"), target / "parity.npz", step)
    (target / "parity.json").write_text(json.dumps(result.to_dict(), indent=1) + "\n")
    if (others := result.other_rows) > parity.MAX_OTHER_ROWS:
        names = ", ".join(task.model.extra_outputs)
        problem = f"the exported model gives {others:.0%} of the rows other integers than PyTorch ({names})"
        raise InputError(None, problem, "round them in the network, or return them as float32")
    if not result.passed:
        worst = max(result.cells, key=lambda cell: result.cells[cell])
        allowed = f"(allowed {result.tolerance:.0e}, worst in {worst})"
        problem = f"the exported model differs from PyTorch by {result.max_error:.2g} {allowed}"
        raise InputError(None, problem, "the checkpoint stays usable, please report this with it")
    return result


def _parity_cell(
    model: Any, specs: Sequence[FieldSpec], lengths: np.ndarray, time: int, generator: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, torch.Tensor]]:
    """Return the inputs of a cell, the outputs of PyTorch, and the parts (B, D) of the embedding."""
    inputs = example_inputs(specs, lengths, time, generator)
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    arguments = fields, torch.from_numpy(inputs["lengths"]), inputs["lengths"]
    layers = model.embedding_layers()
    with torch.inference_mode(), recorded_embedding(layers) as parts:
        outputs = model.outputs(*arguments) if model.extra_outputs else {"logits": model(*arguments)}
    found = {name: outputs[name].numpy() for name in ("logits", *model.extra_outputs)}
    found |= {EMBEDDING: joined_embedding(parts, layers).numpy()} if layers else {}
    return inputs, found, {name: parts[name] for name in layers}


def _manifest_content(task: SequenceTask, run_metrics: Mapping[str, Any]) -> JsonObject:
    dataset, model = task.hparams["dataset"], task.hparams["model"]
    inputs = {field["name"]: input_axes(field) for field in dataset["fields"]}
    return {
        "classes": dataset["classes"],
        "positive": dataset["positive"],
        "decision": run_metrics.get("decision", Decision().to_dict()),
        "schema": dataset["schema"],
        "reader": dataset["reader"],
        "inputs": {**inputs, "lengths": ["batch"]},
        "outputs": ["logits", *task.model.extra_outputs],
        "model": {key: value for key, value in model.items() if key != "_target_"},
        "data": {"digest": dataset["digest"], "rows": dataset["rows"]},
        "metrics": {split: run_metrics[split] for split in SPLITS if split in run_metrics},
        "versions": package_versions(),
    }
