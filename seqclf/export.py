"""`python -m seqclf.export`: a checkpoint → a bundle that runs without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from seqclf.config.command import command


@command("export")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Rebuild the model from its checkpoint, export it, prove it equal."""
    from seqclf.config.instantiate import read_trust
    from seqclf.export_bundle import write_bundle
    from seqclf.reporting.console import console
    from seqclf.training.module import load_task

    checkpoint, folder = Path(str(config["checkpoint"])), Path(str(config["bundle"]))
    task = load_task(checkpoint, read_trust(config["trust"]))
    run = checkpoint.absolute().parent.parent  # `best.ckpt` alone has no parents
    scored = _read(run / "metrics.json", json.loads)
    written = scored if scored.get("step") == task.step else {}  # otherwise they are another checkpoint's
    if not written and (lost := _lost_decision(run, scored)):
        console.print(lost, style="yellow", soft_wrap=True)
    proof = write_bundle(task, folder, written)
    decision = written.get("decision", {}).get("rule", "argmax")
    return {"bundle": str(folder), "decision": decision, "parity": proof["max_error"], "cells": len(proof["cells"])}


def _read(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """A mapping in a file of a run; empty where there is none."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _lost_decision(run: Path, scored: Mapping[str, Any]) -> str | None:
    """Say that a bundle lacks the decision its run was asked for, and how to get it."""
    from seqclf.evaluation.decision import RULES

    settings = _read(run / "config.yaml", yaml.safe_load).get("decision")
    asked = [f"decision.{rule}={settings[rule]}" for rule in RULES if isinstance(settings, dict) and settings.get(rule)]
    if not asked:
        return None
    best, last = run / "checkpoints" / "best.ckpt", run / "checkpoints" / "last.ckpt"
    if scored:
        why, remedy = f"{run / 'metrics.json'} is of another checkpoint", f"export checkpoint={best}"
    else:
        why = f"{run / 'metrics.json'} is missing: the run was not scored"
        remedy = f"repeat its training command with checkpoint={last} hydra.run.dir={run}, which scores and exports"
    return f"the bundle has no decision and chooses the most probable label, not {' '.join(asked)}: {why}; {remedy}"


if __name__ == "__main__":
    main()
