"""Measure the cost of each stage as rows grow: ingest, plan, training steps and prediction.

    python scripts/benchmarks/stages.py [--rows 1e5 1e6 1e7] [--predicted 1e6] [--fraction 0.05] [--scored 1e5]
        [--folder DIR]

Sequences with log-normal lengths (mean 20, at most 400 tokens) and one category field are written to Parquet. Each
stage runs in a fresh process with the defaults of conf/ (`data.memory_limit` too):

- `prepare` encodes the table into the store;
- `reopen` opens the store from the cache;
- `plan` plans one epoch for one rank;
- `train` runs `--fraction` of an epoch of the default LSTM by the training command: `seconds` are those of its steps,
  CPU seconds and memory those of the command until then, and `epoch_s` is the epoch by extrapolation. With at most
  `--scored` rows the command goes on, scores all rows, exports, and takes another `after_s`; with more it is ended;
- `predict` writes the predictions of all rows by the predict command, with the bundle of the smallest size. Sizes
  above `--predicted` are left out.

Prints a table and ends with one JSON line: seconds by the clock and of CPU, rows/s, the peak memory of the process,
and the exponent of its CPU seconds between two sizes (1: in proportion to the rows). `store_bytes` is the size of the
prepared data on disk, `kept_bytes_per_row` the growth of peak memory from the size before.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).parents[2]
MEAN_LENGTH, SIGMA, MAX_LENGTH = 20.0, 0.8, 400
VOCABULARY_SIZE = 1000
BLOCK = 250_000  # rows generated at a time
VALIDATION_ROWS = 1000
MEASURED = ("prepare", "reopen", "plan", "train", "predict")


def generate(folder: Path, rows: int, _: argparse.Namespace) -> dict[str, Any]:
    """Write train.parquet and validation.parquet. One of two tokens at a random position is the label."""
    folder.mkdir(parents=True)
    _write(folder / "validation.parquet", VALIDATION_ROWS, 1)
    _write(folder / "train.parquet", rows, 0)
    return {"file_bytes": (folder / "train.parquet").stat().st_size}


def _write(path: Path, rows: int, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator, writer = np.random.default_rng(seed), None
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        mean_log = math.log(MEAN_LENGTH) - SIGMA**2 / 2
        lengths = np.clip(np.exp(generator.normal(mean_log, SIGMA, count)), 1, MAX_LENGTH).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = generator.integers(2, VOCABULARY_SIZE, offsets[-1]).astype(np.int32)
        labels = generator.integers(0, 2, count).astype(np.int32)
        tokens[offsets[:-1] + generator.integers(0, lengths)] = labels
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))
        table = pa.table({"tokens": lists, "label": pa.array(labels)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def prepare(folder: Path, _: int, __: argparse.Namespace) -> dict[str, Any]:
    """Prepare the dataset."""
    dataset = _dataset(folder)
    return {
        "tokens": int(dataset.splits["train"].sequences.offsets[-1]),
        "store_bytes": sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file()),
    }


def reopen(folder: Path, _: int, __: argparse.Namespace) -> dict[str, Any]:
    """Open the prepared dataset from the cache."""
    return {"reused": _dataset(folder).reused}


def plan(folder: Path, _: int, __: argparse.Namespace) -> dict[str, Any]:
    """Plan one epoch."""
    from seqclf.batching.plan import plan_batches
    from seqclf.settings.train_settings import BatchingOptions

    limits = BatchingOptions().model_dump()
    names = ("max_tokens", "max_sequences", "pool_batches", "overhead")
    lengths = _dataset(folder).splits["train"].sequences.lengths
    started, cpu = time.perf_counter(), time.process_time()
    steps = len(plan_batches(lengths, **{name: limits[name] for name in names}, seed=0, epoch=0))
    return {"steps": steps, "seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}


def train(folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train a part of an epoch with the command. It is ended after the epoch if there are too many rows to score."""
    short = ["trainer.max_epochs=1", f"trainer.limit_train_batches={options.fraction}", f"hydra.run.dir={folder}/run"]
    short += ["logger=none", "baseline=false"] + [f"runtime.threads={options.threads}"] * bool(options.threads)
    command = [sys.executable, "-m", "seqclf.train", *_data(folder), *short]
    with (folder / "train.log").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        process, record = psutil.Process(child.pid), folder / "run/metrics.csv"
        while not record.exists() and child.poll() is None:
            time.sleep(0.2)
        trained = time.perf_counter()
        if child.poll() is not None:
            raise SystemExit((folder / "train.log").read_text())
        cpu = process.cpu_times()
        peak_kb = int((Path("/proc") / str(child.pid) / "status").read_text().split("VmHWM:")[1].split()[0])
        scored = rows <= options.scored
        if not scored:
            child.kill()
        child.wait()
    with record.open() as file:
        (epoch,) = csv.DictReader(file)
    steps, step_ms = int(epoch["step"]), float(epoch["step_ms"])
    seconds = steps * step_ms / 1000
    measured = {"steps": steps, "step_ms": step_ms, "seconds": seconds, "epoch_s": seconds / options.fraction}
    measured |= {"cpu_s": cpu.user + cpu.system, "peak_mb": peak_kb * 1024 / 1e6}
    return {**measured, "after_s": time.perf_counter() - trained} if scored else measured


def predict(folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Predict the rows with the command, in this process. `seconds` leave out imports of this script."""
    source = folder / "train.parquet"
    started, cpu = time.perf_counter(), time.process_time()
    bundle = next(path for path in sorted(folder.parent.glob("*/run/bundle"), key=lambda path: int(path.parts[-3])))
    _command("predict", f"bundle={bundle}", f"input={source}", f"output={folder}/predictions.parquet")
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu_s": cpu_s}


def _command(name: str, *arguments: str) -> None:
    """Run a command of the package in this process, whose memory is read at its end."""
    sys.argv = [f"seqclf {name}", *arguments]
    try:
        runpy.run_module(f"seqclf.{name}", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def _data(folder: Path) -> list[str]:
    files = [f"data.train={folder}/train.parquet", f"data.validation={folder}/validation.parquet"]
    return [
        "data=files",
        *files,
        "data.label=label",
        "data.fields={tokens: category}",
        f"data.cache_dir={folder}/cache",
    ]


def _dataset(folder: Path) -> Any:
    from seqclf.data.prepare_data import DataOptions, prepare

    files = {"train": f"{folder}/train.parquet", "validation": f"{folder}/validation.parquet"}
    source = {**files, "label": "label", "fields": {"tokens": "category"}, "cache_dir": f"{folder}/cache"}
    return prepare(DataOptions.build(**source))


STAGES: dict[str, Callable[[Path, int, argparse.Namespace], dict[str, Any]]] = {
    stage.__name__: stage for stage in (generate, prepare, reopen, plan, train, predict)
}


def run_stage(name: str, folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run one stage in this process. Add its seconds, CPU seconds and the peak memory of the process."""
    from seqclf.system.resources import peak_mb

    started, cpu = time.perf_counter(), time.process_time()
    result = STAGES[name](folder, rows, options)
    measured = {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    return {**measured, "peak_mb": peak_mb(), **result}


def run_in_fresh_process(name: str, folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", name, "--folder", str(folder), "--rows", str(rows)]
    command += ["--fraction", str(options.fraction)]
    command += ["--scored", str(options.scored)] + ["--threads", str(options.threads)] * bool(options.threads)
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ})
    if completed.returncode:
        raise SystemExit(completed.stderr)
    result: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return result


def rows_of(stage: str, rows: int, fraction: float) -> float:
    """Return the rows that a stage worked on."""
    return rows * fraction if stage == "train" else rows


def add_growth(results: dict[int, dict[str, dict[str, Any]]], fraction: float) -> None:
    """Add rows/s, and from the second size on `exponent` and `kept_bytes_per_row`, to the measured stages."""
    before: int | None = None
    for rows, stages in sorted(results.items()):
        for name in set(MEASURED) & set(stages):
            stage, worked = stages[name], rows_of(name, rows, fraction)
            stage["rows_per_s"] = worked / max(stage["seconds"], 1e-9)
            if before is None or name not in results[before]:
                continue
            earlier = results[before][name]
            growth = worked / rows_of(name, before, fraction)
            cost = "seconds" if name == "train" else "cpu_s"  # the command's CPU time holds its start
            stage["exponent"] = math.log(stage[cost] / max(earlier[cost], 1e-9)) / math.log(growth)
            stage["kept_bytes_per_row"] = (stage["peak_mb"] - earlier["peak_mb"]) * 1e6 / (rows - before)
        before = rows


def table(results: dict[int, dict[str, dict[str, Any]]]) -> Iterator[str]:
    """Yield the lines of the Markdown table."""
    yield "| rows | stage | seconds | CPU seconds | rows/s | peak memory | exponent | bytes/row more |"
    yield f"{'|---' * 8}|"
    for rows, stages in sorted(results.items()):
        for name in MEASURED:
            if name not in stages:
                continue
            stage = stages[name]
            exponent = f"{stage['exponent']:.2f}" if "exponent" in stage else ""
            kept = f"{stage['kept_bytes_per_row']:.0f}" if "exponent" in stage else ""
            cells = [f"{rows:,}", name, f"{stage['seconds']:.1f}", f"{stage['cpu_s']:.1f}"]
            cells += [f"{stage['rows_per_s']:,.0f}", f"{stage['peak_mb']:.0f} MB", exponent, kept]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--predicted", type=float, default=1e6, help="most rows to predict")
    parser.add_argument("--fraction", type=float, default=0.05, help="of the epoch that is trained")
    parser.add_argument(
        "--scored", type=float, default=1e5, help="most rows that the training command scores at its end"
    )
    parser.add_argument("--threads", type=int, help="of training; all cores by default, which needs them to be free")
    parser.add_argument("--folder", type=Path, default=None, help="where to generate (2 GB at 1e7)")
    parser.add_argument("--step", choices=STAGES, help="run one stage only, in this process")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(run_stage(options.step, options.folder, int(options.rows[0]), options)))
        return
    results: dict[int, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as work_folder:
        for rows in map(int, options.rows):
            folder = Path(work_folder) / str(rows)
            results[rows] = {}
            for name in STAGES:
                if name == "predict" and rows > options.predicted:
                    continue
                results[rows][name] = run_in_fresh_process(name, folder, rows, options)
                print(f"{rows:,} {name}: {results[rows][name]['seconds']:.1f} s", file=sys.stderr, flush=True)
    add_growth(results, options.fraction)
    for line in table(results):
        print(line)
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
