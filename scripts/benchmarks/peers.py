"""The same LSTM on the same sequences in what people use today, and in seqclf's own command: real tokens per second.

    pip install -e ".[peers]"
    python scripts/benchmarks/peers.py [--rounds 5] [--only seqclf,torch_bucketed] [--output docs/peers]

4096 sequences with log-normal lengths; embedding 64, LSTM 128, last step, layer norm, two classes; 32 sequences an
update, AdamW, gradients clipped. Every contender is a process of its own and trains an epoch to warm up, then one a
round, in turns; those not at work are stopped. An epoch is timed from the loading of its first update to the end of
its last. seqclf is timed by its command, `python -m seqclf.train`, with W&B, metrics, validation and checkpoints, held
before each epoch (its validation and checkpoints fall between the timed epochs);
`torch_bucketed` is a bare loop over the very batches of that command. All compute on the CPU. Chainer gets an
environment of its own, made on first use. Prints a table, draws a picture, and ends with one JSON line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from seqclf.batching.plan import padding_efficiency, plan_arguments, plan_batches
from seqclf.benchmark.workload import generate_workload
from seqclf.config.command import CONF

PEERS = Path(__file__).parent / "peer_frameworks"
sys.path.insert(0, str(PEERS))

import worker  # noqa: E402

VALIDATION = 512
CHAINER = ("setuptools<70", "wheel", "numpy==1.26.4"), ("chainer==7.8.1",)


class Contender(NamedTuple):
    """`script` and `mode` of scripts/benchmarks/peer_frameworks; `needs`: a package."""

    label: str
    script: str
    mode: str
    needs: str


CONTENDERS = {
    "seqclf": Contender("seqclf's training command", "seqclf_command.py", "", "torch"),
    "torch_bucketed": Contender("bare PyTorch loop, seqclf's batches", "bare_torch.py", "bucketed", "torch"),
    "torch_bucketed_fused": Contender("… with fused AdamW", "bare_torch.py", "bucketed_fused", "torch"),
    "torch_random": Contender("bare PyTorch loop, random batches", "bare_torch.py", "random", "torch"),
    "torch_static": Contender("bare PyTorch loop, static", "bare_torch.py", "static", "torch"),
    "hf_random": Contender("Hugging Face Trainer, random", "hugging_face.py", "random", "transformers"),
    "hf_grouped": Contender("Hugging Face Trainer, grouped by length", "hugging_face.py", "grouped", "transformers"),
    "hf_grouped_packed": Contender("… packed", "hugging_face.py", "grouped_packed", "transformers"),
    "hf_grouped_flushed": Contender("… with flush_denormal", "hugging_face.py", "grouped_flushed", "transformers"),
    "keras_static": Contender("Keras, static graph", "keras_fit.py", "static", "tensorflow"),
    "keras_bucketed": Contender("Keras, bucketed", "keras_fit.py", "bucketed", "tensorflow"),
    "keras_eager": Contender("Keras, bucketed, eager", "keras_fit.py", "eager", "tensorflow"),
    "chainer_bucketed": Contender("Chainer 7, seqclf's batches", "chainer_loop.py", "bucketed", ""),
}
SEQCLF = "seqclf"
LABELS = {name: one.label for name, one in CONTENDERS.items()}


class Task(NamedTuple):
    """The sequences, as a file for the workers; beside it they lie as a user of seqclf has them."""

    workload: Path
    tokens: int
    padding_efficiency: float


class Running:
    """A worker, which is stopped unless it trains."""

    def __init__(self, python: str, contender: Contender, task: Task, log: Path):
        self.log = log
        self.errors = log.open("w")
        self.process = subprocess.Popen(
            [python, str(PEERS / contender.script), contender.mode, str(task.workload)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )

    def epoch(self) -> worker.Epoch:
        assert self.process.stdin and self.process.stdout
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write("epoch\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"{' '.join(map(str, self.process.args))} failed:\n{self.log.read_text()[-2000:]}")
        self.process.send_signal(signal.SIGSTOP)
        return worker.Epoch(*json.loads(answer))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def make_task(work: Path, count: int, epochs: int) -> Task:
    sequences = generate_workload("log_normal", count + VALIDATION, worker.BATCH, 1, seed=0).split
    offsets, tokens = sequences.sequences.offsets, sequences.sequences.fields["token"].astype(np.int64)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens))
    table = pa.table({"token": lists, "label": pa.array([("first", "second")[label] for label in sequences.labels])})
    pq.write_table(table[:count], work / "train.parquet")
    pq.write_table(table[count:], work / "validation.parquet")
    lengths, labels = sequences.sequences.lengths[:count], sequences.labels[:count]
    batching = yaml.safe_load((CONF / "batching" / "token_budget.yaml").read_text())
    plan = plan_arguments({**batching, "max_sequences": worker.BATCH}, lengths, labels)
    arrays, efficiency = {}, []
    for epoch in range(epochs):
        batches = plan_batches(lengths, **plan, seed=0, epoch=epoch)
        efficiency.append(padding_efficiency(lengths, batches))
        arrays |= {f"rows{epoch}": np.concatenate(batches), f"steps{epoch}": np.cumsum([0, *map(len, batches)])}
    path = work / "workload.npz"
    np.savez(path, tokens=tokens[: offsets[count]], offsets=offsets[: count + 1], labels=labels, **arrays)
    return Task(path, int(lengths.sum()), float(np.mean(efficiency)))


def chainer_python(folder: Path) -> str:
    """Of an environment that holds Chainer; made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        for options, packages in zip(([], ["--no-build-isolation"]), CHAINER, strict=True):
            subprocess.run([python, "-m", "pip", "install", "-q", *options, *packages], check=True)
        (folder / "ready").touch()
    return str(python)


def runnable(names: list[str], chainer: Path, tell: Callable[[str], None]) -> dict[str, str]:
    """Contender → the Python it runs in; those that cannot run here are told and left out."""
    pythons = {}
    for name in names:
        needs = CONTENDERS[name].needs
        if needs and importlib.util.find_spec(needs) is None:
            tell(f'{name}: left out, as {needs} is not installed (pip install -e ".[peers]")')
            continue
        try:
            pythons[name] = sys.executable if needs else chainer_python(chainer)
        except subprocess.CalledProcessError as error:
            tell(f"{name}: left out, as its environment cannot be made: {error}")
    return pythons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=4096)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(LABELS), help=", ".join(LABELS))
    parser.add_argument("--chainer", type=Path, default=Path("~/.cache/seqclf/chainer-7.8.1"), help="its environment")
    parser.add_argument("--output", type=Path, default=Path("peers"), help="draws OUTPUT.png")
    options = parser.parse_args()
    if wrong := [name for name in options.only if name not in LABELS]:
        parser.error(f"--only {wrong[0]}: must be some of {', '.join(LABELS)}")
    if min(options.rounds, options.sequences) < 1:
        parser.error("--rounds and --sequences must be at least 1")
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        task = make_task(work, options.sequences, options.rounds + 1)
        pythons = runnable(options.only, options.chainer.expanduser(), console.print)
        epochs: dict[str, list[worker.Epoch]] = {name: [] for name in pythons}
        with ExitStack() as stack:
            running = {}
            for name, python in pythons.items():
                running[name] = Running(python, CONTENDERS[name], task, work / f"{name}.log")
                stack.callback(running[name].close)
                console.print(f"{name}: warm after {running[name].epoch().seconds:.1f} s")
            for round_ in range(options.rounds):
                order = np.random.default_rng(round_).permutation(list(running))
                for name in order.tolist():
                    epochs[name].append(running[name].epoch())
                console.print(f"round {round_ + 1} of {options.rounds}")
    found = summarise(epochs, task)
    console.print(show(found))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(found, options.output.with_suffix(".png"))
    print(json.dumps(found, separators=(",", ":")))


def summarise(epochs: dict[str, list[worker.Epoch]], task: Task) -> dict[str, Any]:
    """`seqclf_is`: so many times as fast as this one, the median of the rounds' own ratios."""
    found = {}
    for name, taken in epochs.items():
        speeds = [task.tokens / epoch.seconds for epoch in taken]
        found[name] = {
            "tokens_per_s": round(statistics.median(speeds)),
            "slowest": round(min(speeds)),
            "fastest": round(max(speeds)),
            "loss": round(taken[0].loss, 4),
        }
        if SEQCLF in epochs:
            ratios = [own.seconds / ours.seconds for own, ours in zip(taken, epochs[SEQCLF], strict=True)]
            found[name]["seqclf_is"] = round(statistics.median(ratios), 2)
    return {"tokens": task.tokens, "padding_efficiency": round(task.padding_efficiency, 4), "contenders": found}


def show(found: dict[str, Any]) -> Table:
    table = Table("contender", "real tokens/s", "slowest to fastest", "seqclf is", "loss of the second epoch")
    for name, one in found["contenders"].items():
        spread = f"{one['slowest']:,} to {one['fastest']:,}"
        times = f"{one['seqclf_is']:.2f} times" if "seqclf_is" in one else ""
        table.add_row(LABELS[name], f"{one['tokens_per_s']:,}", spread, times, f"{one['loss']:.4f}")
    return table


def draw(found: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    ranked = sorted(found["contenders"].items(), key=lambda item: item[1]["tokens_per_s"])
    figure = Figure(figsize=(8, 0.8 + 0.32 * len(ranked)), layout="constrained")
    axis = figure.subplots()
    speeds = [one["tokens_per_s"] / 1e3 for _, one in ranked]
    colours = ["#2f6db5" if name == SEQCLF else "#9aa5b1" for name, _ in ranked]
    bars = axis.barh([_spelled(name) for name, _ in ranked], speeds, color=colours)
    axis.bar_label(bars, fmt="{:.1f}", padding=3, fontsize=8)
    figure.suptitle("thousand real tokens a second: same LSTM, same sequences", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9)
    figure.savefig(path, dpi=130)


def _spelled(name: str) -> str:
    """A label that stands alone."""
    label = LABELS[name]
    return label.replace("…", f"{LABELS[name.rpartition('_')[0]]},") if label.startswith("…") else label


if __name__ == "__main__":
    main()
