"""Export a checkpoint as a bundle that runs without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqclf.errors import InputError
from seqclf.evaluation.decision import RULES
from seqclf.settings.command_settings import ExportConfig
from seqclf.system.json_result import JsonObject, JsonResult
from seqclf.system.run_folder import MODEL
from seqclf.system.state_validation import read_json, read_yaml
from seqclf.training.task import SequenceTask


@dataclass(frozen=True, kw_only=True)
class ExportResult(JsonResult):
    """The JSON line of `export`, with the largest error (`Parity.max_error`) and batches of the parity check.

    `decision`: name of the decision rule.
    """

    bundle: str
    decision: str
    parity: float
    cells: int


def main(config: ExportConfig) -> ExportResult | dict[str, str]:
    """Export the model of a checkpoint, and check that it gives the same logits as PyTorch.

    With `triton`, write a model folder for Triton from a bundle that exists.
    """
    if config.checkpoint is None:
        from seqclf.bundle.triton import write_triton

        if config.triton is None:
            raise InputError(None, "checkpoint is missing", "give RUN/model.ckpt, or triton=REPOSITORY/MODEL")
        write_triton(Path(config.bundle), Path(config.triton))
        return {"bundle": config.bundle, "triton": config.triton}
    if config.triton is not None:
        raise InputError(f"triton={config.triton}", "is written from a bundle", "export the checkpoint first")
    from seqclf.documents.terminal import console
    from seqclf.runs.bundle_export import write_bundle
    from seqclf.training.task import load_task

    checkpoint = Path(config.checkpoint)
    task = load_task(checkpoint, config.trust)
    folder = checkpoint.absolute().parent  # absolute, because a relative path may have no parent folders
    run = folder.parent if folder.name == "checkpoints" else folder
    # The scores of a run are those of its finished model.
    is_finished = folder == run and checkpoint.name == MODEL
    written = _read_mapping(run / "metrics.json", read_json) if is_finished else {}
    if warning := None if written else _lost_choices(run, checkpoint, task):
        console.print(warning, style="yellow", soft_wrap=True)
    parity = write_bundle(task, Path(config.bundle), written)
    rule = written.get("decision", {}).get("rule", "argmax")
    return ExportResult(bundle=config.bundle, decision=rule, parity=parity.max_error, cells=len(parity.cells))


def _read_mapping(path: Path, read: Callable[[Path], Any]) -> JsonObject:
    """Read a dict from a JSON or YAML file of a run. Return {} if the file is missing or its content is not a dict."""
    try:
        content = read(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _lost_choices(run: Path, checkpoint: Path, task: SequenceTask) -> str | None:
    """Return a warning if the bundle will lack choices of validation rows that its run makes, else None."""
    from seqclf.training.task import lacks_validation

    if lacks_validation(checkpoint, task):
        model = run / MODEL
        return f"{checkpoint} lacks what validation set after the training, and its scores: export checkpoint={model}"
    settings = _read_mapping(run / "config.yaml", read_yaml).get("decision")
    rules = {} if not isinstance(settings, dict) else {rule: settings[rule] for rule in RULES if settings.get(rule)}
    if not rules:
        return None
    shown = " ".join(f"decision.{rule}={value}" for rule, value in rules.items())
    return (
        f"the bundle has no decision and chooses the most probable label, not {shown}: {checkpoint} has no scores "
        f"beside it; repeat the training command with checkpoint=auto hydra.run.dir={run}"
    )
