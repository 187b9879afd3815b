"""A trained task → a bundle: the one place where PyTorch and the bundle meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqclf.bundle import manifest, parity
from seqclf.bundle.runtime import open_session
from seqclf.data.encoding.encoders import Encoder
from seqclf.data.storage.dataset import described_encoders
from seqclf.data.write_store import SPLITS
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.models.onnx_export import example_inputs, export_onnx
from seqclf.reporting.model_card import model_card
from seqclf.system.atomic_files import explain_disk_errors, scratch_folder
from seqclf.system.stored_state import error_context
from seqclf.system.versions import package_versions
from seqclf.training.module import SequenceTask

PARITY_SEED = 0


def write_bundle(task: SequenceTask, folder: Path, written: Mapping[str, Any]) -> dict[str, Any]:
    """Export a task to `folder`, prove it equal to PyTorch over the parity grid, and return the proof.

    `written`: what metrics.json of its run holds; without it decisions are the most probable label, and no scores told.
    The folder appears only when it is whole; an earlier bundle in its place is replaced, anything else is not touched.
    """
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir():
        raise InputError(f"bundle={folder}: {above} is not a folder; name another")
    if above == folder and not (folder / manifest.NAME).is_file() and any(folder.iterdir()):
        raise InputError(f"bundle={folder}: is there already and is not a bundle; name another folder")
    dataset = task.hparams["dataset"]
    with error_context("the dataset that the checkpoint describes", "it is damaged or of another version; train again"):
        encoders = described_encoders(dataset)
    content = _content(task, written)
    with error_context("metrics.json of the run", "remove it, and the bundle has no scores"):
        manifest.check_content(content)
    with explain_disk_errors(folder):
        return _write(task, folder, written, encoders, content)


def _write(
    task: SequenceTask,
    folder: Path,
    written: Mapping[str, Any],
    encoders: Mapping[str, Encoder],
    content: dict[str, Any],
) -> dict[str, Any]:
    dataset = task.hparams["dataset"]
    with scratch_folder(folder.parent, ".exporting-") as work:
        target = work / "bundle"
        (target / "encoders").mkdir(parents=True)
        for name, encoder in encoders.items():
            text = json.dumps(encoder.state(), ensure_ascii=False)
            (target / manifest.encoder_file(name)).write_text(text, encoding="utf-8")
        export_onnx(task.model, dataset["fields"], target / "model.onnx")
        proof = _prove(task, target)
        content["parity"] = {key: proof[key] for key in ("max_error", "tolerance")}
        (target / "MODEL_CARD.md").write_text(model_card(content, written), encoding="utf-8")
        manifest.write_manifest(target, content)
        _exchange(target, folder, work / "earlier")
    return proof


def _exchange(target: Path, folder: Path, earlier: Path) -> None:
    """Put `target` in the place of `folder`, which becomes `earlier`; if that is broken off, nothing has changed."""
    try:
        if folder.exists():
            folder.replace(earlier)
        target.replace(folder)
    except BaseException:
        if earlier.exists() and not folder.exists():
            earlier.replace(folder)
        raise


def _prove(task: SequenceTask, target: Path) -> dict[str, Any]:
    """Write `parity.npz` and `parity.json`; raise if the exported model differs."""
    generator = np.random.default_rng(PARITY_SEED)
    arrays: dict[str, np.ndarray] = {}
    model = task.model.cpu().float().eval()
    for cell, lengths, time in parity.grid(generator):
        inputs = example_inputs(task.hparams["dataset"]["fields"], lengths, time, generator)
        fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
        with torch.inference_mode():
            logits = model(fields, torch.from_numpy(inputs["lengths"]), inputs["lengths"]).numpy()
        arrays |= {f"{cell}/{name}": values for name, values in {**inputs, "logits": logits}.items()}
    np.savez_compressed(target / "parity.npz", **arrays)  # type: ignore[arg-type]
    proof = parity.check(open_session(target / "model.onnx", "cpu"), target / "parity.npz")
    (target / "parity.json").write_text(json.dumps(proof, indent=1) + "\n")
    if not proof["passed"]:
        worst = max(proof["cells"], key=lambda cell: proof["cells"][cell])
        raise InputError(
            f"the exported model differs from PyTorch by {proof['max_error']:.2g} (allowed {proof['tolerance']:.0e}, "
            f"worst in {worst}); the checkpoint stays usable, please report this with it"
        )
    return proof


def _content(task: SequenceTask, written: Mapping[str, Any]) -> dict[str, Any]:
    dataset, model = task.hparams["dataset"], task.hparams["model"]
    inputs = {
        field["name"]: ["batch", "time", *([field["width"]] if field["kind"] == "number" else [])]
        for field in dataset["fields"]
    }
    return {
        "classes": dataset["classes"],
        "positive": dataset["positive"],
        "decision": written.get("decision", Decision().to_dict()),
        "schema": dataset["schema"],
        "reader": dataset["reader"],
        "inputs": {**inputs, "lengths": ["batch"]},
        "model": {key: value for key, value in model.items() if key != "_target_"},
        "data": {"digest": dataset["digest"], "rows": dataset["rows"]},
        "metrics": {split: written[split] for split in SPLITS if split in written},
        "versions": package_versions(),
    }
