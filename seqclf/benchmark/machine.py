"""The machine and the software that figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Machine:
    """`name`: model of the processor, or of the GPU. `threads`: of PyTorch on the CPU."""

    device: str
    name: str
    cores: int | None
    threads: int
    precision: str
    torch: str
    python: str


def describe_machine(device: str, precision: str) -> Machine:
    """Describe this machine, for figures of a `device` ("cpu" or "cuda")."""
    return Machine(
        device=device,
        name=torch.cuda.get_device_name() if device == "cuda" else _processor_name(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        precision=precision,
        torch=torch.__version__,
        python=platform.python_version(),
    )


def _processor_name() -> str:
    # On Linux, platform.processor() is empty or says only "x86_64".
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
