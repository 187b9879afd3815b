"""Compare dynamic with static graphs: the same model on the same generated sequences, padded in several ways.

    python scripts/benchmarks/dynamic_static.py                     four distributions of lengths, four modes
    python scripts/benchmarks/dynamic_static.py --lengths log_normal --modes dynamic static
    python scripts/benchmarks/dynamic_static.py --model gru model.hidden_size=256 optimizer.lr=0.001
    python scripts/benchmarks/dynamic_static.py --quick             a small scale, to see that it runs

`dynamic` pads to the longest sequence of each batch, `packed` is PyTorch's layout for unequal lengths, `static` pads to
the longest sequence of all, and `compiled` is static under `torch.compile`. All start from the same weights and run the
same updates, in rounds, in turn. Times are medians over the rounds; memory is the peak of a process that trains in one
mode alone. Prints a table, and ends with one JSON line.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from generated import CLASS_TOKENS, LENGTH_DISTRIBUTIONS, Workload, generate_workload
from torch import Tensor, nn

import seqclf
from seqclf.batching.batches import SplitRows
from seqclf.batching.collate import pad
from seqclf.config.build import Config, arguments_of, locate
from seqclf.data.storage.dataset import summarize_sequences
from seqclf.errors import first_line
from seqclf.models.auto.feature_cache import feature_cache
from seqclf.models.ensemble import build_classifier
from seqclf.system.resources import available_cpus, peak_mb
from seqclf.training.check_targets import resolve_for_data, resolve_model

MODES = ("dynamic", "packed", "static", "compiled")
QUICK = {"sequences": 64, "batch_size": 8, "updates": 3, "rounds": 1, "lengths": ["log_normal"]}


class Contender(NamedTuple):
    """A model in a mode. `model`: config without noise (see `model_without_noise`)."""

    model: Config
    learning_rate: float
    device: str
    precision: str
    seed: int
    mode: str = "dynamic"


def model_without_noise(model: Mapping[str, Any]) -> Config:
    """Return the config of one network that computes the same numbers in all modes, which set the layout."""
    settings = {key: value for key, value in model.items() if key != "layout"}
    noise = {"dropout", "token_dropout", "number_noise"} & settings.keys()
    return settings | {"members": 1} | dict.fromkeys(noise, 0.0)


class ModeTrainer:
    """Runs single optimizer steps of a contender, in all modes from the same weights, which `reset` restores."""

    def __init__(self, contender: Contender, workload: Workload):
        self.contender, self.workload, self.sequences = contender, workload, workload.split.sequences
        self.packed, compiled = contender.mode == "packed", contender.mode == "compiled"
        self.pad_to = int(self.sequences.lengths.max()) if compiled or contender.mode == "static" else None
        dtype = torch.float16 if contender.precision == "16-mixed" else torch.bfloat16
        self.autocast = torch.autocast(contender.device, dtype, enabled=contender.precision != "32-true")
        model, encoder = contender.model, contender.model.get("encoder")  # a network of heads has none
        if encoder and arguments_of(locate(encoder["_target_"], "model.encoder._target_")).accepts("layout"):
            model = {**model, "layout": "packed" if self.packed else "padded"}
        elif self.packed:
            raise ValueError("it is a layout of recurrent layers, which this model does not have")
        summary = summarize_sequences(self.sequences, workload.fields)
        facts = {"fields": workload.fields, "rows": {"train": len(self.sequences)}, "sequences": summary}
        torch.manual_seed(contender.seed)
        self.model = build_classifier(resolve_for_data(model, facts)[0], workload.fields, len(CLASS_TOKENS))
        # What does not change in training is computed before it, and not timed.
        rows = SplitRows(workload.split, "generated", np.ones(len(CLASS_TOKENS)), contender.device)
        self.model.to(contender.device).fit_to(rows)
        self.frozen_outputs = feature_cache(self.model, rows)
        self.initial_state = copy.deepcopy(self.model.state_dict())
        if compiled:
            self.model.compile(dynamic=False)
        self.reset()

    def reset(self) -> None:
        """Restore the initial weights and create a new optimizer."""
        self.model.load_state_dict(self.initial_state)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.contender.learning_rate)
        self.scaler = torch.amp.GradScaler(self.contender.device, enabled=self.contender.precision == "16-mixed")

    def collate(self, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor, np.ndarray | None, Tensor]:
        """Return the fields, the lengths, the lengths on the CPU (for the packed layout) and the labels of a batch."""
        device = self.contender.device
        fields, lengths = pad(self.sequences, rows, self.pad_to)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in fields.items()}
        if self.frozen_outputs is not None and self.model.training:
            outputs = self.frozen_outputs.batch(rows, tensors["token"].shape[1])
            tensors |= {name: values.to(device) for name, values in outputs.items()}
        labels = torch.from_numpy(self.workload.split.labels[rows]).to(device)
        return tensors, torch.from_numpy(lengths).to(device), lengths if self.packed else None, labels

    def step(self, rows: np.ndarray) -> float:
        """Run one optimizer step, and return its seconds, with those of the collation."""
        started = time.perf_counter()
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.model.training_loss(*self.collate(rows), nn.functional.cross_entropy).total
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.contender.device == "cuda":
            torch.cuda.synchronize()  # without it, the time would only include the launch of the kernels
        return time.perf_counter() - started

    def round(self) -> list[float]:
        """Reset the weights, run one step for every batch, and return the seconds of each."""
        self.reset()
        return [self.step(rows) for rows in self.workload.batches]

    @torch.no_grad()
    def evaluate(self) -> float:
        """Return the loss on the training batches, by `forward`, which is not compiled."""
        self.model.eval()
        outputs = []
        for *inputs, labels in map(self.collate, self.workload.batches):
            with self.autocast:
                outputs.append((self.model.forward(*inputs).float(), labels))
        return float(nn.functional.cross_entropy(*map(torch.cat, zip(*outputs, strict=True))))

    def padding(self) -> float:
        """Return the share of the computed tokens that is padding."""
        lengths = self.sequences.lengths
        computed = sum(len(rows) * (self.pad_to or lengths[rows].max()) for rows in self.workload.batches)
        return float(1 - self.workload.tokens / computed)


def time_modes(
    contenders: Mapping[str, Contender], workload: Workload, rounds: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return a dict mode → figures, and a dict mode → error of the modes that cannot run.

    A first round of each mode, which compiles, is not timed. The order rotates, so that a slowdown hits all equally.
    """
    trainers, first_rounds, errors = {}, {}, {}
    torch._dynamo.reset()  # compiled graphs of an earlier workload count towards the limit of recompilations
    for mode, contender in contenders.items():
        try:
            trainer = ModeTrainer(contender, workload)
            first_rounds[mode], trainers[mode] = trainer.round(), trainer
        except Exception as error:  # such as a missing compiler; go on with the other modes
            errors[mode] = f"{type(error).__name__}: {first_line(error)}"[:200]
    times: dict[str, list[list[float]]] = {mode: [] for mode in trainers}
    for number in range(rounds):
        for mode in np.roll(list(trainers), -number).tolist():
            times[mode].append(trainers[mode].round())
    by_round = {mode: np.sum(seconds, axis=1) for mode, seconds in times.items()}
    figures = {}
    for mode, (first, *others) in first_rounds.items():
        figures[mode] = {
            "tokens_per_s": workload.tokens / float(np.median(by_round[mode])),
            "step_ms": 1e3 * float(np.median(times[mode])),
            "of_static": float(np.median(by_round[mode] / by_round["static"])) if "static" in by_round else None,
            "padding": trainers[mode].padding(),
            "first_step_s": first - float(np.median(others or 0)),
            "loss": trainers[mode].evaluate(),
        }
    return figures, errors


def training_peak_mb(contender: Contender, workload: Workload) -> float:
    """Return the peak memory in MB of the GPU, or of a fresh process, since the peak of a process never decreases."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh_process:
        return fresh_process.submit(_train, contender, workload, torch.get_num_threads()).result()


def _train(contender: Contender, workload: Workload, threads: int) -> float:
    set_process(threads)
    trainer = ModeTrainer(contender, workload)
    # The longest batch twice: the optimizer's state and cached buffers exist only after the first step.
    for rows in (workload.longest_batch, workload.batches[0], workload.longest_batch):
        trainer.step(rows)
    return torch.cuda.max_memory_allocated() / 1e6 if contender.device == "cuda" else peak_mb()


def set_process(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as in training; denormal numbers would dominate the time


def machine_facts(device: str, precision: str) -> dict[str, Any]:
    """Return what the figures depend on."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    facts = {"device": device, "name": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return facts | {"precision": precision, "torch": torch.__version__, "python": platform.python_version()}


def show(value: str | float | None) -> str:
    return str(value or "") if not isinstance(value, float) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", choices=LENGTH_DISTRIBUTIONS, default=[*LENGTH_DISTRIBUTIONS])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--model", nargs="+", default=["lstm"], metavar="NAME", help="and overrides of seqclf train")
    for option, default in (("sequences", 4096), ("batch-size", 32), ("updates", 16), ("rounds", 5), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed", "16-mixed"), default="32-true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=min(torch.get_num_threads(), available_cpus()))
    parser.add_argument("--quick", action="store_true", help="a small scale")
    parser.set_defaults(**QUICK if "--quick" in sys.argv else {})
    options = parser.parse_args()
    if options.sequences < options.batch_size:
        parser.error(f"--batch-size {options.batch_size}: there are only {options.sequences} sequences")
    set_process(options.threads)
    config = seqclf.load_config([f"model={options.model[0]}", *options.model[1:]])
    model = model_without_noise(resolve_model(config["model"]))
    base = Contender(model, config["optimizer"]["lr"], options.device, options.precision, options.seed)
    size = (options.sequences, options.batch_size, options.updates, options.seed)
    rows: list[dict[str, Any]] = []
    for lengths in options.lengths:
        print(f"{lengths} …", file=sys.stderr, flush=True)
        workload = generate_workload(lengths, *size)
        contenders = {mode: base._replace(mode=mode) for mode in options.modes}
        timed, errors = time_modes(contenders, workload, options.rounds)
        for mode, figures in timed.items():
            memory_mb = training_peak_mb(contenders[mode], workload)
            rows.append({"lengths": lengths, "mode": mode} | figures | {"memory_mb": memory_mb})
        rows += [{"lengths": lengths, "mode": mode, "error": error} for mode, error in errors.items()]
    headings = list(dict.fromkeys(key for row in rows for key in row))
    print(f"| {' | '.join(headings)} |\n{'|---' * len(headings)}|")
    for row in rows:
        print(f"| {' | '.join(show(row.get(heading)) for heading in headings)} |")
    print(json.dumps({"machine": machine_facts(options.device, options.precision), "model": model, "figures": rows}))


if __name__ == "__main__":
    main()
