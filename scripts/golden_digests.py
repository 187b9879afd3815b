"""Digests of small runs, to show that a change of the code leaves weights, models and results as they are.

    python scripts/golden_digests.py OUT.txt              # 15 runs, 4 minutes
    python scripts/golden_digests.py OUT.txt toy digits   # some of them
    diff BEFORE.txt OUT.txt

A line per run: the hash of weights and buffers of the last checkpoint, of model.onnx, of metrics.json without times,
and of the predictions. The hash of the state ignores names and equal copies, so that modules may move. Digests hold for
one machine and one version of each library. `PYTHONPATH=TREE` runs another tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

STEPS = ["trainer.max_steps=60", "data=toy", "export=false", "baseline=false"]
EVENTS = ["data.id=holder", "data.label=fraud", "data.group=team", "data.split.test=0.2", "decision.min_recall=0.8"]
RUNS = {
    "auto-60": STEPS,
    "members-60": [*STEPS, "model.members=2"],
    "lstm-60": [*STEPS, "model=lstm", "optimizer.average=0.99"],
    "transformer-60": [*STEPS, "model=transformer"],
    "adaptive-60": [*STEPS, "model=adaptive"],
    "two-lstm-60": [*STEPS, "model=lstm", "model.members=2", "optimizer.average=null"],
    "toy": ["data=toy", "trainer.max_epochs=1"],
    "digits": ["trainer.max_epochs=1"],
    "members": ["data=toy", "trainer.max_epochs=1", "model.members=2"],
    "trees": ["data=listops_trees", "model=tree_lstm", "trainer.max_epochs=1"],
    "adaptive": ["data=toy", "model=adaptive", "trainer.max_epochs=2"],
    "events": ["data=files", *EVENTS, "trainer.max_epochs=4", "model.hidden_size=24", "optimizer.lr=0.02"],
    "held-out": ["data=files", *EVENTS, "trainer.max_epochs=2", "decision.holdout=0.5", "model=gru"],
    "folds": [
        "data=files",
        *EVENTS[:2],
        "data.split.by=fold",
        "data.split.folds=3",
        "data.split.fold=all",
        "trainer.max_epochs=2",
    ],
    "last-epoch": ["data=toy", "trainer.max_epochs=2", "monitor=null", "patience=null"],
}
FIXED = ["logger=none", "trainer.enable_progress_bar=false", "trainer.accelerator=cpu", "runtime.threads=1"]


def digest(content: bytes) -> str:
    """Return the first digits of a hash."""
    return hashlib.sha256(content).hexdigest()[:12]


def without_times(value: Any) -> Any:
    """Return JSON values without seconds."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if "seconds" not in key and key != "time"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def state_digest(checkpoint: Path) -> str:
    """Return the digest of the set of tensors of a checkpoint."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    tensors = {digest(str(tensor.dtype).encode() + tensor.contiguous().numpy().tobytes()) for tensor in state.values()}
    return digest("".join(sorted(tensors)).encode())


def digests(run: Path) -> dict[str, str]:
    """Return the digests of what a run has left."""
    found = {}
    if (run / "checkpoints" / "last.ckpt").is_file():
        found["state"] = state_digest(run / "checkpoints" / "last.ckpt")
    if (run / "bundle" / "model.onnx").is_file():
        found["onnx"] = digest((run / "bundle" / "model.onnx").read_bytes())
    metrics = without_times(json.loads((run / "metrics.json").read_text()))
    found["metrics"] = digest(json.dumps(metrics, sort_keys=True).encode())
    found["predictions"] = digest(repr(pq.read_table(run / "predictions.parquet").to_pydict()).encode())
    return found


def write_events(path: Path) -> None:
    """Write 900 sequences of two fields, of which a tenth are positive."""
    draw = random.Random(7)
    rows = []
    for holder in range(900):
        fraud, count = draw.random() < 0.1, draw.randint(3, 40)
        events = [draw.choice("abcdef" if fraud and draw.random() < 0.5 else "ghijkl") for _ in range(count)]
        amounts = [round(draw.lognormvariate(3 + 0.4 * fraud, 1), 2) for _ in range(count)]
        rows.append({"holder": holder, "event": events, "amount": amounts, "team": holder // 3, "fraud": fraud})
    pq.write_table(pa.Table.from_pylist(rows), path)


def main() -> None:
    target, names = Path(sys.argv[1]).absolute(), sys.argv[2:] or list(RUNS)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the names of files are in results, and are the same in each call
        write_events(Path("events.parquet"))
        for name in names:
            events = ["data.train=events.parquet"] if "data=files" in RUNS[name] else []
            command = [sys.executable, "-m", "seqclf.train", *FIXED, *RUNS[name], *events, f"hydra.run.dir={name}"]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            found = digests(Path(name)) if done.returncode == 0 else {"failed": done.stderr.strip()[-300:]}
            lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
            print(lines[-1], flush=True)
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
