"""What only a GPU can tell, in one run: precisions, sizes, layouts, kernels, memory, and serving on the device.

    python scripts/benchmarks/gpu_suite.py                           on an NVIDIA device
    python scripts/benchmarks/gpu_suite.py --device cpu --quick      the same code on a small scale, to see that it runs

Each part prints its table as it ends; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from rich.console import Console
from rich.table import Table
from torch import nn

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.benchmark.benchmark import machine, one_network
from seqclf.benchmark.modes import MODES, Contender, Settings
from seqclf.benchmark.timing import race
from seqclf.benchmark.workload import Workload, generated
from seqclf.bundle.runtime import MAX_TOKENS, open_session
from seqclf.config.command import CONF
from seqclf.errors import InputError
from seqclf.models.onnx_export import export_onnx
from seqclf.system.memory import resident_mb

PRECISIONS = {
    "fp32": ("32-true", False),
    "tf32": ("32-true", True),
    "bf16": ("bf16-mixed", True),
    "fp16": ("16-mixed", True),
}
PUBLISHED = {"hidden": 768, "batch": 16, "forward_us": 1.96, "training_us": 5.07}  # cuDNN, fp16, an H100


class Scale(NamedTuple):
    sequences: int
    batch_size: int
    updates: int
    rounds: int
    hidden: tuple[int, ...]
    creep: int
    steps: int


FULL = Scale(8192, 128, 24, 5, (128, 256, 512, 1024), 2000, 1024)
QUICK = Scale(256, 16, 3, 2, (16, 32), 60, 64)


class Suite:
    def __init__(self, device: str, scale: Scale, console: Console):
        self.device = device
        self.scale = scale
        self.console = console
        self.model = one_network(yaml.safe_load((CONF / "model" / "lstm.yaml").read_text()))

    def settings(self, precision: str = "32-true", hidden: int | None = None) -> Settings:
        sizes = {"hidden_size": hidden, "embedding_size": 128, "bidirectional": False} if hidden else {}
        return Settings({**self.model, **sizes}, 3e-3, self.device, precision, seed=0)

    def workload(self, lengths: str) -> Workload:
        return generated(lengths, self.scale.sequences, self.scale.batch_size, self.scale.updates, seed=0)

    def race(self, lengths: str, modes: list[str], settings: Settings) -> dict[str, dict[str, Any]]:
        found = race(self.workload(lengths), modes, self.scale.rounds, settings)
        for own in found.values():
            own.pop("seconds", None)
        return found

    def show(self, title: str, rows: list[dict[str, Any]]) -> None:
        table = Table(*rows[0], title=title)
        for row in rows:
            table.add_row(*(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in row.values()))
        self.console.print(table)

    def precisions(self) -> list[dict[str, Any]]:
        """Dynamic, packed and static in each precision, on log-normal lengths."""
        rows = []
        for name, (precision, tf32) in PRECISIONS.items():
            with tf32_allowed(tf32):
                found = self.race("log_normal", ["dynamic", "packed", "static"], self.settings(precision))
            rows += [{"precision": name, "mode": mode} | _speed(own) for mode, own in found.items()]
        return rows

    def sizes(self) -> list[dict[str, Any]]:
        """What is left of the speed on equal lengths: `of_possible` 1 were padding the only cost of raggedness.

        In a precision and of sizes for which cuDNN has its fastest kernels (see docs/gpu.md).
        """
        rows = []
        for hidden in self.scale.hidden:
            settings = self.settings("16-mixed" if self.device == "cuda" else "bf16-mixed", hidden)
            equal = self.race("equal", ["dynamic", "static"], settings)["dynamic"]
            for mode, own in self.race("log_normal", ["dynamic", "packed", "static"], settings).items():
                row = {"hidden": hidden, "mode": mode} | _speed(own)
                if "error" not in own and "error" not in equal:
                    row["of_possible"] = own["tokens_per_s"] / (own["padding_efficiency"] * equal["tokens_per_s"])
                rows.append(row)
        return rows

    def cell(self) -> list[dict[str, Any]]:
        """A single-layer, unidirectional LSTM by itself: microseconds a time step, beside what was published."""
        hidden, batch = (PUBLISHED["hidden"], PUBLISHED["batch"]) if self.scale is FULL else (32, 8)
        kind = torch.float16 if self.device == "cuda" else torch.float32
        module = nn.LSTM(int(hidden), int(hidden), batch_first=True).to(self.device, kind)
        steps = torch.randn(int(batch), self.scale.steps, int(hidden), device=self.device, dtype=kind)

        def forward() -> None:
            with torch.no_grad():
                module(steps)

        def training() -> None:
            module(steps)[0].sum().backward()

        rows = []
        for name, work in (("forward", forward), ("training", training)):
            micro = 1e6 * self._seconds(work) / self.scale.steps
            rows.append({"pass": name, "us_per_step": micro, "published_us": PUBLISHED[f"{name}_us"]})
        return rows

    def _seconds(self, work: Callable[[], None], repeats: int = 20) -> float:
        for _ in range(3):
            work()
        taken = []
        for _ in range(repeats):
            self._synchronise()
            started = time.perf_counter()
            work()
            self._synchronise()
            taken.append(time.perf_counter() - started)
        return float(np.median(taken))

    def kernels(self) -> list[dict[str, Any]]:
        """The costliest kernels of an update, padded and packed."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        workload, rows = self.workload("log_normal"), []
        for mode in ("dynamic", "packed"):
            contender = Contender(MODES[mode], workload, self.settings("bf16-mixed"))
            for update in workload.updates:
                contender.update(update)
            with torch.profiler.profile(activities=activities) as profile:
                contender.update(workload.updates[0])
            events = [event for event in profile.key_averages() if _is_kernel(event, self.device)]
            for event in sorted(events, key=lambda event: -_own_us(event, self.device))[:6]:
                rows.append({"mode": mode, "kernel": event.key[:90], "us": float(_own_us(event, self.device))})
        return rows

    def creep(self) -> list[dict[str, Any]]:
        """Memory after the first pass over ragged batches, and after many."""
        if self.device == "cuda":
            torch.cuda.empty_cache()  # or what other parts have left would be used first
        workload = self.workload("log_normal")
        contender = Contender(MODES["dynamic"], workload, self.settings())
        contender.update(workload.costliest)
        for update in workload.updates:
            contender.update(update)
        first = self._memory_mb()
        for step in range(self.scale.creep):
            contender.update(workload.updates[step % len(workload.updates)])
        last = self._memory_mb()
        return [{"batches": self.scale.creep, "first_mb": first, "last_mb": last, "growth": last / first - 1}]

    def serving(self) -> list[dict[str, Any]]:
        """ONNX Runtime on the exported model, on the CPU and, where it can, on the device: batches sorted by length."""
        workload = self.workload("log_normal")
        model = Contender(MODES["dynamic"], workload, self.settings()).model.cpu().eval()
        plan = plan_batches(
            workload.split.sequences.lengths,
            max_tokens=MAX_TOKENS,
            max_sequences=None,
            pool_batches=None,
            seed=0,
            epoch=0,
        )
        batches = []
        for rows in plan:
            fields, lengths = pad(workload.split.sequences, rows)
            batches.append({**fields, "lengths": lengths})
        tokens, found = int(workload.split.sequences.lengths.sum()), []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export_onnx(model, workload.fields, path)
            for device in ("cpu", "cuda"):
                try:
                    session = open_session(path, device)
                    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
                        raise InputError("ONNX Runtime has no CUDA provider that loads")
                except InputError as error:
                    found.append({"device": device, "tokens_per_s": str(error)})
                    continue
                for batch in batches:
                    session.run(None, batch)
                started = time.perf_counter()
                for batch in batches:
                    session.run(None, batch)
                found.append({"device": device, "tokens_per_s": tokens / (time.perf_counter() - started)})
        return found

    def _memory_mb(self) -> float:
        return torch.cuda.memory_reserved() / 1e6 if self.device == "cuda" else resident_mb()

    def _synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _speed(own: dict[str, Any]) -> dict[str, Any]:
    if "error" in own:
        return {"tokens_per_s": own["error"], "step_ms": "", "of_static": "", "loss": ""}
    values = (own["tokens_per_s"], own["step_ms"], own.get("time_ratio", ""), own["loss"])
    return dict(zip(("tokens_per_s", "step_ms", "of_static", "loss"), values, strict=True))


def _is_kernel(event: Any, device: str) -> bool:
    """On a GPU, where operators, annotations and kernels all have a time on the device, only the last."""
    if device == "cpu":
        return _own_us(event, device) > 0
    return event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation


def _own_us(event: Any, device: str) -> float:
    return event.self_device_time_total if device == "cuda" else event.self_cpu_time_total


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small scale")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no NVIDIA device; --device cpu --quick shows that the code runs")
    torch.set_flush_denormal(True)
    console = Console()
    suite = Suite(options.device, QUICK if options.quick else FULL, console)
    parts = (suite.cell, suite.creep, suite.precisions, suite.sizes, suite.kernels, suite.serving)
    torch.manual_seed(0)
    found: dict[str, Any] = {"machine": machine(suite.settings())}
    for part in parts:
        started = time.perf_counter()
        try:
            rows = part()
        except Exception as error:  # what one part cannot do must not cost the figures of the others
            rows = [{"error": f"{type(error).__name__}: {error}"[:300]}]
        suite.show(f"{part.__name__}, {time.perf_counter() - started:.0f} s", rows)
        found[part.__name__] = rows
    print(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main()
