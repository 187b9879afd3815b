"""`python -m seqclf.export`: export a checkpoint as a bundle that runs without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.config.command import command
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject, JsonResult
from seqclf.system.state_validation import read_json, read_yaml

if TYPE_CHECKING:
    from seqclf.command_options import ExportConfig


@dataclass(frozen=True, kw_only=True)
class ExportResult(JsonResult):
    """The JSON line of `export`, with the largest error (`Parity.max_error`) and batches of the parity check.

    `decision`: name of the decision rule.
    """

    bundle: str
    decision: str
    parity: float
    cells: int


@command("export", "seqclf.command_options.ExportConfig")
def main(config: ExportConfig) -> ExportResult | dict[str, str]:
    """Export the model of a checkpoint, and check that it gives the same logits as PyTorch.

    With `triton`, write a model folder for Triton from a bundle that exists.
    """
    if config.checkpoint is None:
        from seqclf.bundle.triton import write_triton

        if config.triton is None:
            raise InputError(
                None, "checkpoint is missing", "give RUN/checkpoints/best.ckpt, or triton=REPOSITORY/MODEL"
            )
        write_triton(Path(config.bundle), Path(config.triton))
        return {"bundle": config.bundle, "triton": config.triton}
    if config.triton is not None:
        raise InputError(f"triton={config.triton}", "is written from a bundle", "export the checkpoint first")
    from seqclf.documents.terminal import console
    from seqclf.runs.export import write_bundle
    from seqclf.training.load_task import load_task

    checkpoint = Path(config.checkpoint)
    task = load_task(checkpoint, config.trust)
    run = checkpoint.absolute().parent.parent  # absolute, because a relative path may have no parent folders
    metrics = _read_mapping(run / "metrics.json", read_json)
    # The scores in metrics.json are those of one of the run's checkpoints.
    written = metrics if metrics.get("step") == task.trained_steps else {}
    if not written and (warning := _lost_decision(run, metrics)):
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


def _lost_decision(run: Path, metrics: Mapping[str, Any]) -> str | None:
    """Return a warning if the config of the run sets a decision rule that the bundle will not have, else None."""
    from seqclf.evaluation.decisions.decision import RULES

    settings = _read_mapping(run / "config.yaml", read_yaml).get("decision")
    if not isinstance(settings, dict):
        return None
    rules = [f"decision.{rule}={settings[rule]}" for rule in RULES if settings.get(rule)]
    if not rules:
        return None
    best, last = run / "checkpoints" / "best.ckpt", run / "checkpoints" / "last.ckpt"
    if metrics:
        reason, remedy = f"{run / 'metrics.json'} is of another checkpoint", f"export checkpoint={best}"
    else:
        reason = f"{run / 'metrics.json'} is missing: the run was not scored"
        remedy = f"repeat its training command with checkpoint={last} hydra.run.dir={run}, which scores and exports"
    return f"the bundle has no decision and chooses the most probable label, not {' '.join(rules)}: {reason}; {remedy}"


if __name__ == "__main__":
    main()
