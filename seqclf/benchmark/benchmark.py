"""The whole benchmark: every workload raced, weighed and judged."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from seqclf.benchmark.changing_structure import structure_test
from seqclf.benchmark.memory import leak_test, peaks
from seqclf.benchmark.modes import MODES, Contender, Settings
from seqclf.benchmark.rating import verdict
from seqclf.benchmark.timing import race
from seqclf.benchmark.workload import LENGTHS, Workload, generated, of_dataset
from seqclf.errors import InputError

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
NOISES = ("dropout", "token_dropout", "number_noise")


def settings_of(config: dict[str, Any]) -> Settings:
    """Checked, and with this machine's choices filled in. Noise is off, so that all modes compute the same numbers."""
    if config["precision"] not in PRECISIONS:
        raise InputError(f"precision={config['precision']}: must be one of {', '.join(PRECISIONS)}")
    if config["device"] not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={config['device']}: must be auto, cpu or cuda")
    if config["device"] == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda: PyTorch sees no NVIDIA device; set device=cpu")
    for key, known in (("modes", list(MODES)), ("lengths", list(LENGTHS))):
        wrong = [name for name in config[key] if name not in known]
        if wrong or not config[key]:
            raise InputError(f"{key}={wrong[0] if wrong else '[]'}: must be some of {', '.join(known)}")
    if not {"dynamic", "static"} <= set(config["modes"]):
        raise InputError("modes: must hold dynamic and static, which are compared")
    if config["runtime"]["threads"]:
        torch.set_num_threads(config["runtime"]["threads"])
    torch.set_flush_denormal(config["runtime"]["flush_denormal"])
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    device = auto if config["device"] == "auto" else config["device"]
    if config["precision"] == "16-mixed" and device == "cpu":
        raise InputError("precision=16-mixed: needs an NVIDIA device; set precision=bf16-mixed")
    model, lr = one_network(config["model"]), config["optimizer"]["lr"]
    return Settings(model, lr, device, config["precision"], config["seed"])


def one_network(model: Mapping[str, Any]) -> dict[str, Any]:
    """Of a config of conf/model the arguments of a network without noise, but for its layout."""
    own = {key: value for key, value in model.items() if key not in ("_target_", "layout", "members")}
    return own | dict.fromkeys(NOISES, 0.0)


def make_workloads(config: dict[str, Any]) -> Iterator[Workload]:
    size = (config["batch_size"], config["updates"], config["seed"])
    if config.get("data") is not None:
        from seqclf.data.prepare import DataOptions, prepare

        yield of_dataset(prepare(DataOptions.build(**config["data"])), *size)
        return
    for name in config["lengths"]:
        yield generated(name, config["sequences"], *size)


def bench(
    config: dict[str, Any],
    settings: Settings,
    workloads: Iterator[Workload],
    show: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any]:
    """Workload → modes, leak, structure and verdict, with the machine; `show` is told of each workload as it ends."""
    found = {}
    for workload in workloads:
        own = _one(workload, config, settings)
        found[workload.name] = own
        show(workload.name, own)
    return {"machine": machine(settings), "model": settings.model, "workloads": found}


def _one(workload: Workload, config: dict[str, Any], settings: Settings) -> dict[str, Any]:
    modes = race(workload, config["modes"], config["rounds"], settings)
    if settings.device == "cpu":
        ran = [name for name, own in modes.items() if "error" not in own]
        for name, peak in peaks(workload, ran, settings, torch.get_num_threads()).items():
            modes[name] |= peak
    leak = leak_test(Contender(MODES["dynamic"], workload, settings), config["leak_steps"])
    structure = structure_test(workload, settings)
    for own in modes.values():
        own.pop("seconds", None)
    return {
        "mean_length": workload.mean,
        "longest": workload.longest,
        "updates": len(workload.updates),
        "batch_size": len(workload.updates[0]),
        "modes": modes,
        "leak": leak,
        "structure": structure,
        "verdict": verdict(modes, leak, structure),
        "work_ratio": workload.mean / workload.longest,
    }


def machine(settings: Settings) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if settings.device == "cuda" else _processor()
    return {
        "device": settings.device,
        "name": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "precision": settings.precision,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
