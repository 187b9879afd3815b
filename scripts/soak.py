"""Soak test: train and predict ragged data for a fixed time, with random kills, and watch memory, files and processes.

    python scripts/soak.py [--minutes 10] [--seed 0] [--warmup 0.5] [--output DIR]

Three things run side by side on log-normal lengths:

- *training*: one `python -m seqclf.train` without a last epoch, several hundred steps each;
- *prediction*: one process that gives a classifier one ragged table after the other (a step is a table of 256 rows);
- *kills*: short trainings that get SIGKILL at random moments, while they import, prepare, train or export, and are
  started again by the same command (`checkpoint=auto`) until they end. Each must end with the weights of an unbroken
  run.

Resident memory, open files, threads and child processes of the first two are read every second. The memory's slope per
1,000 steps after `--warmup` (a fraction of the time) has a 95 % interval that allows for the autocorrelation of the
readings (scripts/slope.py). At the end, temporary files (`.seqclf-*`, the folder of TMPDIR), locks that are still
held, processes and shared memory that the runs left are searched for.

Prints a table and ends with one JSON line; `--output` keeps the readings. The exit code is 1 if memory grows by more
than 1 MB per 1,000 steps beyond doubt (the interval's lower end), if files, threads or child processes grow, if
anything is left, or if a resumed run fails or ends with other weights.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "scripts/benchmarks")]

from memory_growth import prediction_steps, train_bundle, write_sequences  # noqa: E402
from slope import BLOCKS, fit_slope  # noqa: E402

TRAINING_ROWS = 4000
SHORT_ROWS = 1500
MAX_MB = 1.0  # per 1,000 steps; the interval's lower end may not lie above it
MAX_MORE = 4  # files, threads or children more at the end than after warm-up
STOP_S = 120
MAX_KILLS = 4  # of a short training
KEPT = ("torchinductor_", ".ses")  # what PyTorch and ONNX Runtime keep in TMPDIR for the next process
COLUMNS = ("seconds", "step", "memory_mb", "files", "threads", "children")
QUIET = ("logger=none", "baseline=false", "patience=null", "runtime.threads=1")


@dataclass
class Watched:
    """A long process. `step`: returns its steps so far. `readings`: rows of COLUMNS."""

    name: str
    process: subprocess.Popen[bytes]
    step: Callable[[], int]
    readings: list[tuple[float, ...]] = field(default_factory=list)

    def read(self, seconds: float) -> None:
        """Append a reading. Raises psutil.NoSuchProcess if the process has ended."""
        process = psutil.Process(self.process.pid)
        children = len(process.children(recursive=True))
        memory = process.memory_info().rss / 1e6
        self.readings.append((seconds, self.step(), memory, process.num_fds(), process.num_threads(), children))


@dataclass
class Kills:
    """Counts of the short trainings, and what went wrong in them."""

    runs: int = 0
    kills: int = 0
    resumes: int = 0
    faults: list[str] = field(default_factory=list)


class Soak:
    """The processes of a soak test in one folder, each in a session of its own."""

    def __init__(self, folder: Path, seed: int):
        self.folder = folder
        self.random = random.Random(seed)
        self.sessions: list[int] = []
        self.kills = Kills()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "SEQCLF_CACHE": f"{folder}/cache",
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `python ARGUMENTS…` in a new session, with its output in NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.sessions.append(process.pid)
        return process

    def start_training(self) -> Watched:
        write_sequences(self.folder / "train.parquet", TRAINING_ROWS, 0)
        run = self.folder / "long"
        data = ["data=files", f"data.train={self.folder}/train.parquet", "data.label=label"]
        small = ["model.embedding_size=16", "model.hidden_size=32"]  # more steps, and so more shapes, in a minute
        endless = [*small, "trainer.max_epochs=-1", "checkpoint_every=100", f"hydra.run.dir={run}"]
        process = self.start("long", "-m", "seqclf.train", *data, *QUIET, *endless)
        return Watched("training", process, lambda: last_step(run / "metrics.csv"))

    def start_prediction(self) -> Watched:
        bundle = train_bundle(self.folder / "bundle")
        steps = self.folder / "predicted"
        process = self.start("predict", __file__, "--predict", str(bundle), "--steps", str(steps))
        return Watched("prediction", process, lambda: int(steps.read_text() or 0) if steps.exists() else 0)

    def short_training(self, name: str, *, export: bool) -> subprocess.Popen[bytes]:
        rows = f"data.generator.rows={{train: {SHORT_ROWS}, validation: 200, test: 200}}"
        options = ["data=toy", rows, *QUIET, "trainer.max_epochs=4", "checkpoint_every=2", f"export={export}"]
        folders = [f"hydra.run.dir={self.folder}/{name}", f"data.cache_dir={self.folder}/{name}-cache"]
        return self.start(name, "-m", "seqclf.train", *options, *folders, "checkpoint=auto")

    def kill_trainings(self, stop: threading.Event) -> None:
        """Kill and resume short trainings until `stop` is set and the last one has ended."""
        started = time.monotonic()
        self.short_training("unbroken", export=True).wait()
        seconds = time.monotonic() - started
        expected = weights(self.folder / "unbroken")
        while not stop.is_set():
            name = f"killed-{self.kills.runs}"
            try:
                self._kill_one(name, seconds)
                if difference := unlike(expected, weights(self.folder / name)):
                    self.kills.faults.append(f"{name}: {difference}")
            except (OSError, RuntimeError) as error:
                self.kills.faults.append(f"{name}: {error}")
            self.kills.runs += 1

    def _kill_one(self, name: str, seconds: float) -> None:
        """Run one short training with up to MAX_KILLS kills. `seconds`: of an unbroken run."""
        export = self.random.random() < 0.5
        for _ in range(self.random.randint(1, MAX_KILLS)):
            self._count_resume(name)
            process = self.short_training(name, export=export)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.random.uniform(0, seconds))
            if process.poll() is not None:
                break
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.kills.kills += 1
        else:
            self._count_resume(name)
            process = self.short_training(name, export=export)
            process.wait()
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode}, see {name}.log")

    def _count_resume(self, name: str) -> None:
        self.kills.resumes += (self.folder / name / "checkpoints/last.ckpt").exists()

    def left(self) -> list[str]:
        """Return what the processes left: temporary files, held locks, processes and shared memory."""
        found = [f"file {path.relative_to(self.folder)}" for path in self.folder.rglob(".seqclf-*.part")]
        found += [f"temporary {path.name}" for path in self.temporary.iterdir() if not path.name.startswith(KEPT)]
        found += [f"held lock {path.relative_to(self.folder)}" for path in self.folder.rglob("*.lock") if is_held(path)]
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) in self.sessions:
                    found.append(f"process {process.pid} {process.name()}")
        memory = Path("/dev/shm")
        names = [path.name for path in memory.iterdir()] if memory.exists() else []
        found += [f"shared memory {name}" for name in names if belongs(name, self.sessions)]
        return sorted(found)


def belongs(name: str, processes: list[int]) -> bool:
    """Return True if the name of a shared-memory segment holds the package's name or the id of one of its processes.

    >>> belongs("torch_412_99_0", [412]), belongs("torch_4123_99_0", [412])
    (True, False)
    """
    return "seqclf" in name or any(str(process) in name.split("_") for process in processes)


def is_held(path: Path) -> bool:
    """Return True if a process holds the lock of a file."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def last_step(metrics: Path) -> int:
    """Return the last step of metrics.csv, 0 before the first epoch has ended."""
    if not metrics.exists():
        return 0
    with metrics.open() as file:
        return max((int(row["step"]) for row in csv.DictReader(file)), default=0)


def weights(run: Path) -> dict[str, Any]:
    """Return the weights of last.ckpt and its step."""
    import torch

    checkpoint = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    return {**checkpoint["state_dict"], "global_step": torch.tensor(checkpoint["global_step"])}


def unlike(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the names of the weights that differ, empty if none does."""
    differ = [name for name, weight in one.items() if not np.array_equal(weight, other.get(name))]
    return f"other {', '.join(differ)}" if differ else ""


def predict_for_ever(bundle: str, steps: Path) -> None:
    """Predict ragged tables until the process is ended, and write the number of tables to a file now and then."""
    for number, (run, _) in enumerate(prediction_steps(bundle, ()), 1):
        run()
        if number % 10 == 0:
            steps.write_text(str(number))


def summarize(readings: list[tuple[float, ...]], warmup: float) -> dict[str, Any]:
    """Return figures of a watched process. `warmup`: fraction of the readings that the slope leaves out.

    The steps between two changes of the counter are interpolated. `slope_mb`, `low_mb` and `high_mb` are per 1,000
    steps, and missing if there are too few readings or no steps.
    """
    columns = dict(zip(COLUMNS, np.array(readings).T, strict=True))
    changed = np.flatnonzero(np.diff(columns["step"], prepend=-1))
    steps = np.interp(columns["seconds"], columns["seconds"][changed], columns["step"][changed])
    late = slice(int(warmup * len(steps)), int(changed[-1]) + 1)  # the steps after the last change are unknown
    memory = columns["memory_mb"]
    figures: dict[str, Any] = {
        "steps": int(columns["step"][-1]),
        "start_mb": round(float(memory[0]), 1),
        "settled_mb": round(float(memory[late.start]), 1),
        "end_mb": round(float(memory[-1]), 1),
    }
    if len(steps[late]) >= BLOCKS and np.ptp(steps[late]) > 0:
        fitted = fit_slope(steps[late] / 1000, memory[late])
        figures |= {"slope_mb": fitted.slope, "low_mb": fitted.low, "high_mb": fitted.high}
    for name in COLUMNS[3:]:
        quarter = max(1, len(memory) // 4)
        values = columns[name]
        figures[name] = [int(values[late.start : late.start + quarter].max()), int(values[-quarter:].max())]
    return figures


def findings_of(name: str, figures: dict[str, Any]) -> list[str]:
    """Return a line for each thing that grows."""
    found = []
    if figures.get("low_mb", 0) > MAX_MB:
        found.append(f"{name}: memory grows by at least {figures['low_mb']:.1f} MB per 1,000 steps")
    for unit in COLUMNS[3:]:
        before, after = figures[unit]
        if after > before + MAX_MORE:
            found.append(f"{name}: {unit} grow from {before} to {after}")
    return found


def soak(folder: Path, minutes: float, seed: int, warmup: float) -> dict[str, Any]:
    """Run everything for a time and return the result."""
    (folder / "bundle").mkdir()
    run, stop = Soak(folder, seed), threading.Event()
    watched = [run.start_prediction(), run.start_training()]
    killer = threading.Thread(target=run.kill_trainings, args=(stop,))
    killer.start()
    started, dead = time.monotonic(), []
    while (seconds := time.monotonic() - started) < 60 * minutes:
        for one in watched:
            if one.process.poll() is None and one.step() > 0:  # starting up is not running
                one.read(seconds)
        time.sleep(1)
    stop.set()
    for one in watched:
        if one.process.poll() is not None:
            dead.append(f"{one.name}: ended by itself, exit code {one.process.returncode}")
            continue
        one.process.terminate()
        try:
            one.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            dead.append(f"{one.name}: does not end within {STOP_S} s of SIGTERM")
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
    killer.join()
    figures = {one.name: summarize(one.readings, warmup) for one in watched if len(one.readings) > 1}
    findings = [*dead, *run.kills.faults, *run.left()]
    findings += [f"{one.name}: no step" for one in watched if one.name not in figures]
    for name, of_process in figures.items():
        findings += findings_of(name, of_process)
    counts = {"runs": run.kills.runs, "kills": run.kills.kills, "resumes": run.kills.resumes}
    (folder / "readings.json").write_text(json.dumps({one.name: one.readings for one in watched}))
    return {"minutes": minutes, "seed": seed, **figures, **counts, "findings": findings}


def table(result: dict[str, Any]) -> list[str]:
    """Return the lines of the Markdown table."""
    lines = [
        "| process | steps | memory at start, after warm-up, at the end | slope per 1,000 steps | files | threads |"
    ]
    lines.append(f"{'|---' * 6}|")
    for name in ("training", "prediction"):
        if name not in result:
            continue
        figures = result[name]
        slope = "too short"
        if "slope_mb" in figures:
            slope = f"{figures['slope_mb']:+.2f} MB ({figures['low_mb']:+.2f} to {figures['high_mb']:+.2f})"
        memory = f"{figures['start_mb']:.0f}, {figures['settled_mb']:.0f}, {figures['end_mb']:.0f} MB"
        files, threads = (f"{before} to {after}" for before, after in (figures["files"], figures["threads"]))
        lines.append(f"| {name} | {figures['steps']:,} | {memory} | {slope} | {files} | {threads} |")
    lines.append("")
    lines.append(f"{result['runs']} short trainings, {result['kills']} kills, {result['resumes']} resumes")
    return lines + [f"FINDING {finding}" for finding in result["findings"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=float, default=0.5, help="fraction of the readings without a slope")
    parser.add_argument("--output", type=Path, help="keep the readings, logs and runs in this folder, which is new")
    parser.add_argument("--predict", help=argparse.SUPPRESS)  # of the process that predicts: the bundle
    parser.add_argument("--steps", type=Path, help=argparse.SUPPRESS)  # and the file of its counter
    options = parser.parse_args()
    if options.predict:
        predict_for_ever(options.predict, options.steps)
    if options.output is not None:
        options.output.mkdir(parents=True)
        result = soak(options.output.resolve(), options.minutes, options.seed, options.warmup)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = soak(Path(folder), options.minutes, options.seed, options.warmup)
    print("\n".join(table(result)))
    print(json.dumps(result, separators=(",", ":")))
    return 1 if result["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
