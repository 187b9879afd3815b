"""Measure on a GPU: precisions, model sizes, layouts, kernels, memory, and ONNX Runtime on the device.

    python scripts/benchmarks/gpu_suite.py                           on an NVIDIA device
    python scripts/benchmarks/gpu_suite.py --device cpu --quick      the same code on a small scale, to see that it runs

Each part prints its table when it ends. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from dynamic_static import Contender, ModeTrainer, machine_facts, model_without_noise, time_modes
from generated import Workload, generate_workload
from rich.console import Console
from rich.table import Table
from torch import nn

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.sequence_reader import MAX_TOKENS
from seqclf.bundle.session import open_session, thread_count
from seqclf.config.command_keys import default_settings
from seqclf.errors import InputError
from seqclf.models.onnx.exporter import export_onnx
from seqclf.system.resources import resident_mb

Rows = list[dict[str, Any]]

PRECISIONS = {  # name → Lightning precision, TF32 allowed
    "fp32": ("32-true", False),
    "tf32": ("32-true", True),
    "bf16": ("bf16-mixed", True),
    "fp16": ("16-mixed", True),
}
PUBLISHED = {"hidden": 768, "batch": 16, "forward_us": 1.96, "training_us": 5.07}  # cuDNN, fp16, an H100
KERNELS_SHOWN = 6
PARTS = ("cell", "creep", "precisions", "sizes", "shapes", "kernels", "serving")


class Scale(NamedTuple):
    """Sizes of the measurements.

    `growth_steps`: steps whose memory is watched. `cell_tokens`: length of the sequences for a single LSTM layer.
    `shapes`: batch sizes and lengths of batches without padding.
    `model_size`: hidden and embedding size of the model, None for its defaults.
    """

    sequences: int
    batch_size: int
    batches: int
    rounds: int
    hidden_sizes: tuple[int, ...]
    growth_steps: int
    cell_tokens: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    model_size: int | None = None


FULL = Scale(8192, 128, 24, 5, (128, 256, 512, 1024), 2000, 1024, ((8, 32, 128, 512), (32, 128, 512)))
QUICK = Scale(128, 8, 2, 1, (16, 32), 40, 64, ((2, 8), (4, 16)), model_size=16)


class Suite:
    """The parts of the suite. Each returns the rows of its table."""

    def __init__(self, device: str, scale: Scale):
        self.device = device
        self.scale = scale
        self.model = model_without_noise(default_settings("model", "lstm"))
        if scale.model_size is not None:
            self.model |= {"hidden_size": scale.model_size, "embedding_size": scale.model_size}

    def contender(self, precision: str = "32-true", hidden_size: int | None = None) -> Contender:
        """Return the default LSTM, or a unidirectional one of another size."""
        sizes: dict[str, Any] = {}
        if hidden_size:
            sizes = {"hidden_size": hidden_size, "embedding_size": 128, "bidirectional": False}
        return Contender({**self.model, **sizes}, 3e-3, self.device, precision, seed=0)

    def workload(self, lengths: str) -> Workload:
        return generate_workload(lengths, self.scale.sequences, self.scale.batch_size, self.scale.batches, seed=0)

    def time(
        self, lengths: str, modes: list[str], contender: Contender
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return figures by mode, and the errors of modes that cannot run."""
        contenders = {mode: contender._replace(mode=mode) for mode in modes}
        return time_modes(contenders, self.workload(lengths), self.scale.rounds)

    def precisions(self) -> Rows:
        """Dynamic, packed and static in each precision, on log-normal lengths."""
        rows = []
        for name, (precision, tf32) in PRECISIONS.items():
            with tf32_allowed(tf32):
                timings, errors = self.time("log_normal", ["dynamic", "packed", "static"], self.contender(precision))
            rows += [{"precision": name, "mode": mode} | _speed(timing) for mode, timing in timings.items()]
            rows += [{"precision": name, "mode": mode} | _no_speed(message) for mode, message in errors.items()]
        return rows

    def sizes(self) -> Rows:
        """Speed by hidden size. `of_possible` is 1 if padding is the only cost of unequal lengths.

        In a precision and of sizes for which cuDNN has its fastest kernels (see docs/gpu.md).
        """
        rows = []
        for hidden_size in self.scale.hidden_sizes:
            contender = self.contender("16-mixed" if self.device == "cuda" else "bf16-mixed", hidden_size)
            equal_lengths, _ = self.time("equal", ["dynamic", "static"], contender)
            timings, errors = self.time("log_normal", ["dynamic", "packed", "static"], contender)
            for mode, timing in timings.items():
                row = {"hidden": hidden_size, "mode": mode} | _speed(timing)
                if "dynamic" in equal_lengths:
                    possible = (1 - timing["padding"]) * equal_lengths["dynamic"]["tokens_per_s"]
                    row["of_possible"] = timing["tokens_per_s"] / possible
                rows.append(row)
            rows += [{"hidden": hidden_size, "mode": mode} | _no_speed(message) for mode, message in errors.items()]
        return rows

    def cell(self) -> Rows:
        """A single unidirectional LSTM layer alone: microseconds per time step, next to the published figures."""
        hidden_size, batch_size = (PUBLISHED["hidden"], PUBLISHED["batch"]) if self.scale is FULL else (32, 8)
        dtype = torch.float16 if self.device == "cuda" else torch.float32
        layer = nn.LSTM(int(hidden_size), int(hidden_size), batch_first=True).to(self.device, dtype)
        shape = (int(batch_size), self.scale.cell_tokens, int(hidden_size))
        inputs = torch.randn(*shape, device=self.device, dtype=dtype)

        def forward() -> None:
            with torch.no_grad():
                layer(inputs)

        def training() -> None:
            layer(inputs)[0].sum().backward()

        rows = []
        for name, work in (("forward", forward), ("training", training)):
            microseconds = 1e6 * self._median_seconds(work) / self.scale.cell_tokens
            rows.append({"pass": name, "us_per_step": microseconds, "published_us": PUBLISHED[f"{name}_us"]})
        return rows

    def shapes(self) -> Rows:
        """Milliseconds of a step by rows and length, without padding."""
        rows = []
        for batch_size, length in itertools.product(*self.scale.shapes):
            lengths = partial(_equal_lengths, length)
            workload = generate_workload(lengths, batch_size, batch_size, 1, seed=0)
            trainer = ModeTrainer(self.contender(), workload)
            seconds = [trainer.step(workload.longest_batch) for _ in range(15)][5:]
            milliseconds = 1e3 * float(np.median(seconds))
            speed = batch_size * length / np.median(seconds)
            rows.append({"batch": batch_size, "length": length, "step_ms": milliseconds, "tokens_per_s": float(speed)})
        return rows

    def kernels(self) -> Rows:
        """The costliest kernels of a training step, padded and packed."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        workload, rows = self.workload("log_normal"), []
        for mode in ("dynamic", "packed"):
            trainer = ModeTrainer(self.contender("bf16-mixed")._replace(mode=mode), workload)
            for batch in workload.batches:  # the first steps choose kernels, which is not to be profiled
                trainer.step(batch)
            with torch.profiler.profile(activities=activities) as profile:
                trainer.step(workload.batches[0])
            kernels = [event for event in profile.key_averages() if _is_kernel(event, self.device)]
            kernels.sort(key=lambda event: -_self_us(event, self.device))
            for event in kernels[:KERNELS_SHOWN]:
                rows.append({"mode": mode, "kernel": event.key[:90], "us": float(_self_us(event, self.device))})
        return rows

    def creep(self) -> Rows:
        """Memory after the first pass over ragged batches, and after many."""
        if self.device == "cuda":
            torch.cuda.empty_cache()  # memory that other parts left cached would hide the growth
        workload = self.workload("log_normal")
        trainer = ModeTrainer(self.contender(), workload)
        for batch in (workload.longest_batch, *workload.batches):
            trainer.step(batch)
        first_mb = self._memory_mb()
        for step in range(self.scale.growth_steps):
            trainer.step(workload.batches[step % len(workload.batches)])
        last_mb = self._memory_mb()
        growth = last_mb / first_mb - 1
        return [{"batches": self.scale.growth_steps, "first_mb": first_mb, "last_mb": last_mb, "growth": growth}]

    def serving(self) -> Rows:
        """ONNX Runtime on the CPU and on the device, with batches sorted by length."""
        workload = self.workload("log_normal")
        model = ModeTrainer(self.contender(), workload).model.cpu().eval()
        batches = _serving_batches(workload)
        tokens = int(workload.split.sequences.lengths.sum())
        rows: Rows = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export_onnx(model, workload.fields, path)
            for device in ("cpu", "cuda"):
                try:
                    seconds = _serving_seconds(path, device, batches)
                except InputError as error:
                    rows.append({"device": device, "tokens_per_s": str(error)})
                else:
                    rows.append({"device": device, "tokens_per_s": tokens / seconds})
        return rows

    def _median_seconds(self, work: Callable[[], None], repeats: int = 20) -> float:
        for _ in range(3):  # the first calls choose kernels and allocate
            work()
        seconds = []
        for _ in range(repeats):
            self._synchronize()
            started = time.perf_counter()
            work()
            self._synchronize()
            seconds.append(time.perf_counter() - started)
        return float(np.median(seconds))

    def _memory_mb(self) -> float:
        return torch.cuda.memory_reserved() / 1e6 if self.device == "cuda" else resident_mb()

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _equal_lengths(length: int, generator: np.random.Generator, count: int) -> np.ndarray:
    return np.full(count, length)


def _speed(timing: dict[str, Any]) -> dict[str, Any]:
    return {key: timing[key] for key in ("tokens_per_s", "step_ms", "of_static", "loss")}


def _no_speed(message: str) -> dict[str, Any]:
    return {"tokens_per_s": message, "step_ms": "", "of_static": "", "loss": ""}


def _serving_batches(workload: Workload) -> list[dict[str, np.ndarray]]:
    """Return inputs of the exported model, in batches of similar lengths as in `seqclf.predict`."""
    sequences = workload.split.sequences
    plan = plan_batches(
        sequences.lengths, max_tokens=MAX_TOKENS, max_sequences=None, pool_batches=None, seed=0, epoch=0
    )
    batches = []
    for rows in plan:
        fields, lengths = pad(sequences, rows)
        batches.append({**fields, "lengths": lengths})
    return batches


def _serving_seconds(path: Path, device: str, batches: list[dict[str, np.ndarray]]) -> float:
    """Return the seconds of the second pass over the batches. Raise InputError if the device cannot be used."""
    session = open_session(path, device, thread_count(None))
    for batch in batches:  # the first pass allocates memory for every shape
        session.run(None, batch)
    started = time.perf_counter()
    for batch in batches:
        session.run(None, batch)
    return time.perf_counter() - started


def _is_kernel(event: Any, device: str) -> bool:
    """Return whether a profiler event is a kernel. On a GPU, operators and annotations have a device time too."""
    if device == "cpu":
        return _self_us(event, device) > 0
    return event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation


def _self_us(event: Any, device: str) -> float:
    return event.self_device_time_total if device == "cuda" else event.self_cpu_time_total


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def print_table(console: Console, title: str, rows: Rows) -> None:
    headings = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*headings, title=title)
    for row in rows:
        values = (row.get(heading, "") for heading in headings)
        table.add_row(*(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values))
    console.print(table)


def run_suite(suite: Suite, parts: Sequence[str], console: Console) -> dict[str, Any]:
    """Run some parts, print their tables and return their rows by part."""
    torch.manual_seed(0)
    results: dict[str, Any] = {"machine": machine_facts(suite.device, suite.contender().precision)}
    for part in parts:
        started = time.perf_counter()
        try:
            rows = getattr(suite, part)()
        except Exception as error:  # a part that fails must not cost the figures of the others
            rows = [{"error": f"{type(error).__name__}: {error}"[:300]}]
        print_table(console, f"{part}, {time.perf_counter() - started:.0f} s", rows)
        results[part] = rows
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small scale")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no NVIDIA device; --device cpu --quick shows that the code runs")
    torch.set_flush_denormal(True)
    suite = Suite(options.device, QUICK if options.quick else FULL)
    print(json.dumps(run_suite(suite, options.parts, Console()), separators=(",", ":")))


if __name__ == "__main__":
    main()
