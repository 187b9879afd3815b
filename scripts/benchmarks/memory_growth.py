"""Find what the memory of ragged training and prediction grows by, and where it stops.

    python scripts/benchmarks/memory_growth.py [--only train/default …] [--steps 4000] [--rounds 1] [--threads 1]

`train` steps the default LSTM through epochs of log-normal lengths; a step is a batch. `predict` gives a bundle's
classifier tables of 256 such sequences; a step is a table. Every variant runs in a fresh process, in random order each
round. Variants change one setting of oneDNN, of PyTorch, of the allocator or of ONNX Runtime. `repeated` trains on the
batches of one epoch again and again, so that no new shape comes after it. Variants named `…trim` call `malloc_trim`
every 500 steps.

Prints a table: resident memory in MB at eight steps, the shapes met, the step from which memory stays within 1 % of
its end, and the CPU seconds over those of the default of the same round (the median). Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
SEQUENCES = 4096
TABLE_ROWS = 256
READINGS = 80  # of memory in a process
SHOWN = 8
TOLERANCE = 0.01  # of the memory at the end; within it, memory has stopped
TRIM_STEPS = 500
BLOCKS = 20  # number of blocks that the steps are divided into; a line is fitted to the mean memory of each block
T_95 = 2.10  # 97.5 % quantile of Student's t distribution with BLOCKS - 2 degrees of freedom
LEAK_SHARE = 0.01  # fraction of the mean memory; growth over all measured steps is no leak below this fraction


class Variant(NamedTuple):
    """Environment of the process, and options of the worker."""

    environment: dict[str, str]
    options: tuple[str, ...] = ()


VARIANTS = {
    "train/default": Variant({}),
    "train/repeated": Variant({}, ("repeated",)),
    "train/onednn 0": Variant({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0"}),
    "train/onednn 128": Variant({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}),
    "train/onednn 4096": Variant({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096"}),
    "train/ideep 32": Variant({"LRU_CACHE_CAPACITY": "32"}),
    "train/one arena": Variant({"MALLOC_ARENA_MAX": "1"}),
    "train/trim": Variant({}, ("trim",)),
    "predict/default": Variant({}),
    "predict/no arena": Variant({}, ("no_arena",)),
    "predict/no pattern": Variant({}, ("no_pattern",)),
    "predict/shrink": Variant({}, ("shrink",)),
    "predict/one malloc arena": Variant({"MALLOC_ARENA_MAX": "1"}),
    "predict/trim": Variant({}, ("trim",)),
}


class MemoryGrowth(NamedTuple):
    """Growth of memory during `steps` steps.

    `low`, `high`: bounds of the 95 % confidence interval of `mb_per_1000_steps`. `leaks`: True if the growth is judged
    to be a leak (see `fit_growth`).
    """

    steps: int
    mb_per_1000_steps: float
    low: float
    high: float
    leaks: bool


def fit_growth(used_mb: np.ndarray) -> MemoryGrowth:
    """Fit a line to memory measurements, and return its slope as the growth of memory.

    `used_mb`: (S,) memory in MB after each of S steps.

    The steps are divided into blocks, and the line is fitted to the mean memory of each block by least squares. Single
    steps are not used, because the memory after neighbouring steps is correlated. The growth is a leak if the growth is
    significantly above 0, and if the growth over all measured steps exceeds 1 % of the mean memory.
    """
    block_size = len(used_mb) // BLOCKS
    block_means = used_mb[-block_size * BLOCKS :].reshape(BLOCKS, block_size).mean(axis=1)
    (slope, _), covariance = np.polyfit(block_size * np.arange(BLOCKS), block_means, 1, cov=True)
    margin = T_95 * float(np.sqrt(covariance[0, 0]))
    low, high = float(1000 * (slope - margin)), float(1000 * (slope + margin))
    leaks = low > 0 and slope * len(used_mb) > LEAK_SHARE * float(used_mb.mean())
    return MemoryGrowth(len(used_mb), float(1000 * slope), low, high, bool(leaks))


def write_sequences(path: Path, rows: int, seed: int) -> None:
    """Write a Parquet table of log-normal sequences, whose label one of the tokens decides."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from generated import generate_workload

    split = generate_workload("log_normal", rows, 1, 1, seed).split
    offsets = pa.array(split.sequences.offsets.astype(np.int32))
    tokens = pa.ListArray.from_arrays(offsets, pa.array(split.sequences.fields["token"]))
    pq.write_table(pa.table({"tokens": tokens, "label": pa.array(split.labels)}), path)


def training_steps(options: tuple[str, ...]) -> Iterator[tuple[Callable[[], Any], tuple[int, ...]]]:
    """Yield (function that runs a step, shape of its batch) for ever."""
    import torch
    from dynamic_static import Contender, ModeTrainer
    from generated import generate_workload

    from seqclf.batching.plan import plan_batches
    from seqclf.config.command_keys import default_settings

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_flush_denormal(True)
    model: Any = default_settings("model", "lstm")
    workload = generate_workload("log_normal", SEQUENCES, 32, 16, 0)
    trainer = ModeTrainer(Contender(model, 1e-3, "cpu", "32-true", 0), workload)
    lengths, epoch = workload.split.sequences.lengths, 0
    limits: dict[str, Any] = {"max_tokens": 16384, "max_sequences": 32, "pool_batches": 50, "overhead": 8.0}
    while True:
        for rows in plan_batches(lengths, **limits, seed=0, epoch=0 if "repeated" in options else epoch):
            yield lambda rows=rows: trainer.step(rows), (len(rows), int(lengths[rows].max()))
        epoch += 1


def prediction_steps(bundle: str, options: tuple[str, ...]) -> Iterator[tuple[Callable[[], Any], tuple[int, ...]]]:
    """Yield (function that predicts a table, lengths of its longest sequence and of all) for ever."""
    import onnxruntime
    import pyarrow as pa
    from generated import LENGTH_DISTRIBUTIONS

    from seqclf.bundle.runtime import Classifier

    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    _change_sessions(onnxruntime, options)
    classifier, generator = Classifier(bundle, device="cpu", threads=threads), np.random.default_rng(0)
    while True:
        lengths = LENGTH_DISTRIBUTIONS["log_normal"](generator, TABLE_ROWS).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = generator.integers(3, 1000, offsets[-1])
        table = pa.table({"tokens": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))})
        yield lambda table=table: classifier.predict(table), (int(lengths.max()),)


def _change_sessions(onnxruntime: Any, options: tuple[str, ...]) -> None:
    """Open sessions with the options of a variant from now on."""
    ordinary = onnxruntime.SessionOptions

    def changed() -> Any:
        session_options = ordinary()
        session_options.enable_cpu_mem_arena = "no_arena" not in options
        session_options.enable_mem_pattern = "no_pattern" not in options
        return session_options

    onnxruntime.SessionOptions = changed
    if "shrink" in options:
        import seqclf.bundle.session as session_module

        run = session_module.ModelSession.run
        run_options = onnxruntime.RunOptions()
        run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        session_module.ModelSession.run = lambda self, names, feeds, _=None: run(self, names, feeds, run_options)


def watch(kind: str, options: tuple[str, ...], steps: int, bundle: str) -> dict[str, Any]:
    """Run steps in this process. Return memory and shapes at each reading, and the seconds."""
    from seqclf.system.resources import resident_mb

    source = training_steps(options) if kind == "train" else prediction_steps(bundle, options)
    trim = ctypes.CDLL(None).malloc_trim if "trim" in options else None
    shapes: set[tuple[int, ...]] = set()
    at, memory_mb, met = [], [], []
    started, cpu, seconds = time.perf_counter(), time.process_time(), 0.0
    for number in range(1, steps + 1):
        run, shape = next(source)
        begin = time.process_time()
        run()
        seconds += time.process_time() - begin
        shapes.add(shape)
        if trim is not None and number % TRIM_STEPS == 0:
            trim(0)
        if number % max(1, steps // READINGS) == 0:
            at.append(number)
            memory_mb.append(round(resident_mb(), 1))
            met.append(len(shapes))
    return {
        "steps": at,
        "memory_mb": memory_mb,
        "shapes": met,
        "wall_s": round(time.perf_counter() - started, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "step_cpu_ms": round(1000 * seconds / steps, 3),
    }


def stopping_step(steps: list[int], memory_mb: list[float]) -> int:
    """Return the first reading from which all later ones lie within 1 % of the mean of the last tenth.

    >>> stopping_step([1, 2, 3, 4], [50.0, 99.0, 100.0, 100.0])
    3
    """
    end = float(np.mean(memory_mb[-max(1, len(memory_mb) // 10) :]))
    outside = [index for index, value in enumerate(memory_mb) if abs(value - end) >= TOLERANCE * end]
    return steps[min(outside[-1] + 1, len(steps) - 1)] if outside else steps[0]


def train_bundle(folder: Path) -> Path:
    """Train one epoch and return the bundle."""
    write_sequences(folder / "train.parquet", 1024, 0)
    data = ["data=files", f"data.train={folder}/train.parquet", "data.label=label"]
    short = ["logger=none", "baseline=false", "trainer.max_epochs=1", f"hydra.run.dir={folder}/run"]
    command = [sys.executable, "-m", "seqclf.train", *data, *short]
    environment = {**os.environ, "SEQCLF_CACHE": f"{folder}/cache"}
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if completed.returncode:
        raise SystemExit(completed.stderr)
    return folder / "run/bundle"


def run_variant(name: str, steps: int, threads: int, bundle: Path | None) -> dict[str, Any]:
    """Watch a variant in a fresh process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **VARIANTS[name].environment}
    command = [sys.executable, __file__, "--step", name, "--steps", str(steps), "--bundle", str(bundle)]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if completed.returncode:
        raise SystemExit(completed.stderr)
    result: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return {**result, "stops_at": stopping_step(result["steps"], result["memory_mb"])}


def cpu_ratio(results: dict[str, list[dict[str, Any]]], name: str) -> float:
    """Return CPU seconds of a variant over those of the default of the same round, the median."""
    defaults = results.get(f"{name.split('/')[0]}/default", results[name])
    pairs = zip(results[name], defaults, strict=True)
    return statistics.median(one["step_cpu_ms"] / other["step_cpu_ms"] for one, other in pairs)


def table(results: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, a row per variant."""
    first = next(iter(results.values()))[0]
    shown = np.linspace(0, len(first["steps"]) - 1, SHOWN).astype(int)
    headings = " | ".join(f"{first['steps'][index]:,}" for index in shown)
    yield f"| variant | {headings} | shapes | stops at | CPU |"
    yield f"{'|---' * (SHOWN + 4)}|"
    for name, (result, *_) in results.items():
        cells = " | ".join(f"{result['memory_mb'][index]:.0f}" for index in shown)
        yield f"| {name} | {cells} | {result['shapes'][-1]} | {result['stops_at']:,} | {cpu_ratio(results, name):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--step", choices=VARIANTS, help="run one variant only, in this process")
    parser.add_argument("--bundle", help="of that variant")
    options = parser.parse_args()
    if options.step:
        kind = options.step.split("/")[0]
        print(json.dumps(watch(kind, VARIANTS[options.step].options, options.steps, options.bundle)))
        return
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    with tempfile.TemporaryDirectory() as folder:
        predicts = any(name.startswith("predict") for name in results)
        bundle = train_bundle(Path(folder)) if predicts else None
        for round_number in range(options.rounds):
            for name in np.random.default_rng(round_number).permutation(list(results)).tolist():
                results[name].append(run_variant(name, options.steps, options.threads, bundle))
                print(f"round {round_number + 1}: {name}", file=sys.stderr, flush=True)
    for line in table(results):
        print(line)
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
