"""`python -m seqclf.export`: a checkpoint → a bundle that runs without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqclf.command import command


@command("export")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Rebuild the model from its checkpoint, export it, prove it equal."""
    from seqclf.learning.task import load_task
    from seqclf.packing import write_bundle

    checkpoint, folder = Path(str(config["checkpoint"])), Path(str(config["bundle"]))
    task = load_task(checkpoint)
    scored = checkpoint.parent.parent / "metrics.json"
    written = json.loads(scored.read_text(encoding="utf-8")) if scored.is_file() else {}
    if not isinstance(written, dict) or written.get("step") != task.step:
        written = {}  # they are another checkpoint's
    proof = write_bundle(task, folder, written)
    return {"bundle": str(folder), "parity": proof["max_error"], "cells": len(proof["cells"])}


if __name__ == "__main__":
    main()
