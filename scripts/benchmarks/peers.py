"""Compare training speed: the same LSTM on the same sequences in popular frameworks and in seqclf's command.

    pip install -e ".[peers]"
    python scripts/benchmarks/peers.py [--rounds 5] [--only seqclf,torch_bucketed] [--output docs/peers]

4096 sequences with log-normal lengths. Embedding 64, LSTM 128, last token, layer norm, two classes. Steps of 32
sequences, AdamW, clipped gradients. Every peer runs in a separate process and trains one epoch to warm up, then one
each round, in random order. The others are stopped meanwhile. An epoch is timed from loading its first batch to the end
of its last step.

seqclf is timed by its command, `python -m seqclf.train`, with W&B, metrics, validation and checkpoints. It is paused
before each epoch, so that validation and checkpoints fall between the timed epochs. `torch_bucketed` is a bare loop
over exactly the batches of that command. `seqclf_whole` and `torch_whole` are timed until the next epoch could start,
with a validation of 512 rows and the checkpoints.

All compute on the CPU. Chainer gets a separate environment, made on first use. Prints a table, draws a picture, and
ends with one JSON line, which `--record` writes to docs/figures.json too.
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
from rich.console import Console
from rich.table import Table

from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.batching.resume_settings import PLAN_KEYS
from seqclf.config.command_keys import default_settings

WORKERS = Path(__file__).parent / "peer_frameworks"
sys.path[:0] = [str(Path(__file__).parent), str(WORKERS)]

import recorded  # noqa: E402
import worker  # noqa: E402
from generated import generate_workload  # noqa: E402

VALIDATION_ROWS = 512
# Chainer's build needs an old setuptools, and its code an old numpy.
CHAINER_PACKAGES = ("setuptools<70", "wheel", "numpy==1.26.4"), ("chainer==7.8.1",)


class Peer(NamedTuple):
    """A way to train. `script` and `mode`: of peer_frameworks/. `package`: needed to run it, empty for Chainer, which
    has a separate environment."""

    label: str
    script: str
    mode: str
    package: str


PEERS = {
    "seqclf": Peer("seqclf's training command", "seqclf_command.py", "", "torch"),
    "torch_bucketed": Peer("bare PyTorch loop, seqclf's batches", "bare_torch.py", "bucketed", "torch"),
    "torch_bucketed_fused": Peer("… with fused AdamW", "bare_torch.py", "bucketed_fused", "torch"),
    "seqclf_whole": Peer("seqclf's command, whole epochs", "seqclf_command.py", "whole", "torch"),
    "torch_whole": Peer("bare PyTorch loop, whole epochs", "bare_torch.py", "bucketed_fused_whole", "torch"),
    "torch_random": Peer("bare PyTorch loop, random batches", "bare_torch.py", "random", "torch"),
    "torch_static": Peer("bare PyTorch loop, static", "bare_torch.py", "static", "torch"),
    "hf_random": Peer("Hugging Face Trainer, random", "hugging_face.py", "random", "transformers"),
    "hf_grouped": Peer("Hugging Face Trainer, grouped by length", "hugging_face.py", "grouped", "transformers"),
    "hf_grouped_packed": Peer("… packed", "hugging_face.py", "grouped_packed", "transformers"),
    "hf_grouped_flushed": Peer("… with flush_denormal", "hugging_face.py", "grouped_flushed", "transformers"),
    "keras_static": Peer("Keras, static graph", "keras_fit.py", "static", "tensorflow"),
    "keras_bucketed": Peer("Keras, bucketed", "keras_fit.py", "bucketed", "tensorflow"),
    "keras_eager": Peer("Keras, bucketed, eager", "keras_fit.py", "eager", "tensorflow"),
    "chainer_bucketed": Peer("Chainer 7, seqclf's batches", "chainer_loop.py", "bucketed", ""),
}
SEQCLF, WHOLE = "seqclf", "seqclf_whole"


class Task(NamedTuple):
    """The sequences to train on. `workload`: file for the workers, next to the Parquet files of seqclf's command."""

    workload: Path
    tokens: int
    padding_efficiency: float


class RunningPeer:
    """The worker process of a peer, stopped except while it trains an epoch."""

    def __init__(self, python: str, peer: Peer, task: Task, log: Path):
        self.log = log
        self.errors = log.open("w")
        self.process = subprocess.Popen(
            [python, str(WORKERS / peer.script), peer.mode, str(task.workload)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )

    def train_epoch(self) -> worker.Epoch:
        """Let the worker train one epoch. Exit with the end of its log if it fails."""
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
        self.process.send_signal(signal.SIGSTOP)  # background threads must not take cores from the next peer
        return worker.Epoch(*json.loads(answer))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def make_task(folder: Path, count: int, epochs: int) -> Task:
    """Write the sequences, and the batches that seqclf's command will train on in each epoch."""
    split = generate_workload("log_normal", count + VALIDATION_ROWS, worker.BATCH, 1, seed=0).split
    offsets, tokens = split.sequences.offsets, split.sequences.fields["token"].astype(np.int64)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens))
    table = pa.table({"token": lists, "label": pa.array([("first", "second")[label] for label in split.labels])})
    pq.write_table(table[:count], folder / "train.parquet")
    pq.write_table(table[count:], folder / "validation.parquet")
    lengths, labels = split.sequences.lengths[:count], split.labels[:count]
    batches, efficiency = _plan_epochs(lengths, labels, epochs)
    path = folder / "workload.npz"
    np.savez(path, tokens=tokens[: offsets[count]], offsets=offsets[: count + 1], labels=labels, **batches)
    return Task(path, int(lengths.sum()), efficiency)


def _plan_epochs(lengths: np.ndarray, labels: np.ndarray, epochs: int) -> tuple[dict[str, np.ndarray], float]:
    """Return the batches of each epoch as arrays (see `worker.read_workload`), and their mean padding efficiency."""
    batching = default_settings("batching")
    plan = {**{key: batching[key] for key in PLAN_KEYS}, "max_sequences": worker.BATCH, "labels": labels}
    arrays: dict[str, np.ndarray] = {}
    efficiencies = []
    for epoch in range(epochs):
        batches = plan_batches(lengths, **plan, seed=0, epoch=epoch)
        efficiencies.append(padding_efficiency(lengths, batches))
        arrays[f"rows{epoch}"] = np.concatenate(batches)
        arrays[f"steps{epoch}"] = np.cumsum([0, *map(len, batches)])
    return arrays, float(np.mean(efficiencies))


def chainer_python(folder: Path) -> str:
    """Return the Python of an environment with Chainer, which is made if it is missing."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        for options, packages in zip(([], ["--no-build-isolation"]), CHAINER_PACKAGES, strict=True):
            subprocess.run([python, "-m", "pip", "install", "-q", *options, *packages], check=True)
        (folder / "ready").touch()
    return str(python)


def find_pythons(names: list[str], chainer_folder: Path, report: Callable[[str], None]) -> dict[str, str]:
    """Return the Python of each peer that can run on this machine. The others are reported and left out."""
    pythons = {}
    for name in names:
        package = PEERS[name].package
        if package and importlib.util.find_spec(package) is None:
            report(f'{name}: left out, as {package} is not installed (pip install -e ".[peers]")')
            continue
        try:
            pythons[name] = sys.executable if package else chainer_python(chainer_folder)
        except subprocess.CalledProcessError as error:
            report(f"{name}: left out, as its environment cannot be made: {error}")
    return pythons


def run_rounds(
    pythons: dict[str, str], task: Task, rounds: int, folder: Path, report: Callable[[str], None]
) -> dict[str, list[worker.Epoch]]:
    """Warm up all peers, then train one epoch of each in every round. Return the epochs by peer."""
    epochs: dict[str, list[worker.Epoch]] = {name: [] for name in pythons}
    with ExitStack() as stack:
        running: dict[str, RunningPeer] = {}
        for name, python in pythons.items():
            running[name] = RunningPeer(python, PEERS[name], task, folder / f"{name}.log")
            stack.callback(running[name].close)
            report(f"{name}: warm after {running[name].train_epoch().seconds:.1f} s")
        for round_index in range(rounds):
            # A random order each round, so that no peer always follows the same one.
            for name in np.random.default_rng(round_index).permutation(list(running)).tolist():
                epochs[name].append(running[name].train_epoch())
            report(f"round {round_index + 1} of {rounds}")
    return epochs


def summarize(epochs: dict[str, list[worker.Epoch]], task: Task) -> dict[str, Any]:
    """Return speed and loss by peer. `seqclf_is`: speed of seqclf over that of the peer, the median over rounds.

    `seqclf_cpu_is`: the same ratio of the seconds of CPU. Peers that are timed with validation and checkpoints are
    compared with the command timed so.
    """
    peers = {}
    for name, timed in epochs.items():
        speeds = [task.tokens / epoch.seconds for epoch in timed]
        peers[name] = {
            "tokens_per_s": round(statistics.median(speeds)),
            "slowest": round(min(speeds)),
            "fastest": round(max(speeds)),
            "loss": round(timed[0].loss, 4),
        }
        ours = WHOLE if name.endswith("_whole") else SEQCLF
        if ours in epochs:
            pairs = list(zip(timed, epochs[ours], strict=True))
            peers[name]["seqclf_is"] = round(statistics.median(their.seconds / our.seconds for their, our in pairs), 3)
            if all(epoch.cpu for pair in pairs for epoch in pair):
                peers[name]["seqclf_cpu_is"] = round(statistics.median(their.cpu / our.cpu for their, our in pairs), 3)
    return {"tokens": task.tokens, "padding_efficiency": round(task.padding_efficiency, 4), "peers": peers}


def result_table(summary: dict[str, Any]) -> Table:
    table = Table("peer", "tokens/s", "slowest to fastest", "seqclf is", "loss of the second epoch")
    for name, figures in summary["peers"].items():
        spread = f"{figures['slowest']:,} to {figures['fastest']:,}"
        ratio = f"{figures['seqclf_is']:.2f} times as fast" if "seqclf_is" in figures else ""
        table.add_row(PEERS[name].label, f"{figures['tokens_per_s']:,}", spread, ratio, f"{figures['loss']:.4f}")
    return table


def draw(summary: dict[str, Any], path: Path) -> None:
    """Draw a bar for each peer, the fastest on top."""
    from matplotlib.figure import Figure

    ranked = sorted(summary["peers"].items(), key=lambda item: item[1]["tokens_per_s"])
    figure = Figure(figsize=(8, 0.8 + 0.32 * len(ranked)), layout="constrained")
    axis = figure.subplots()
    speeds = [figures["tokens_per_s"] / 1e3 for _, figures in ranked]
    colours = ["#2f6db5" if name == SEQCLF else "#9aa5b1" for name, _ in ranked]
    bars = axis.barh([_full_label(name) for name, _ in ranked], speeds, color=colours)
    axis.bar_label(bars, fmt="{:.1f}", padding=3, fontsize=8)
    figure.suptitle("thousand tokens a second: same LSTM, same sequences", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9)
    figure.savefig(path, dpi=130)


def _full_label(name: str) -> str:
    """Return the label of a peer. In the table, "…" stands for the label of the peer it is a variant of."""
    label = PEERS[name].label
    if not label.startswith("…"):
        return label
    parent = name.rpartition("_")[0]
    return label.replace("…", f"{PEERS[parent].label},")


def parse_options() -> argparse.Namespace:
    names = list(PEERS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=4096)
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--chainer", type=Path, default=Path("~/.cache/seqclf/chainer-7.8.1"), help="its environment")
    parser.add_argument("--output", type=Path, default=Path("peers"), help="draws OUTPUT.png")
    parser.add_argument("--record", action="store_true", help="write docs/figures.json")
    options = parser.parse_args()
    if unknown := [name for name in options.only if name not in PEERS]:
        parser.error(f"--only {unknown[0]}: must be some of {', '.join(names)}")
    if min(options.rounds, options.sequences) < 1:
        parser.error("--rounds and --sequences must be at least 1")
    return options


def main() -> None:
    options = parse_options()
    console = Console()
    pythons = find_pythons(options.only, options.chainer.expanduser(), console.print)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = make_task(folder, options.sequences, options.rounds + 1)
        epochs = run_rounds(pythons, task, options.rounds, folder, console.print)
    summary = summarize(epochs, task)
    console.print(result_table(summary))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(summary, options.output.with_suffix(".png"))
    if options.record:
        recorded.record({"peers": summary})
    print(json.dumps(summary, separators=(",", ":")))


if __name__ == "__main__":
    main()
