"""CPUs and memory of this process: how much it may use, how much it uses, and errors where memory is full."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Rounds that a thread of libgomp, PyTorch's OpenMP on Linux, polls before it sleeps. With its default, two trainings on
# two cores took minutes in place of seconds, because waiting threads hold the cores that others need. Without polling
# (OMP_WAIT_POLICY=PASSIVE), the steps of a training alone took three times as long; with 2,000 rounds, an eighth longer
# than with the default (docs/log.md).
SPIN_COUNT = "2000"
OWN_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
LOOK_S, START_S = 0.25, 600.0  # seconds of a look at other programs, and of a process whose start is looked at too


def yield_cores() -> None:
    """Let waiting threads of OpenMP sleep soon, unless the user has chosen. Call it before PyTorch loads libgomp."""
    if not any(name in os.environ for name in OWN_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def available_cpus(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the number of CPUs that this process may use: its CPU affinity, limited by the quota of its containers."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([count, *_quotas(cgroups, own)])))


def available_memory(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the memory that this process may use in bytes: the machine's, or the limit of its containers."""
    limits = [sys.maxsize]
    if hasattr(os, "sysconf"):  # Windows has none
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for group in _groups(cgroups, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):  # control groups of version 2 and 1
            with suppress(OSError, ValueError):  # the group is not mounted here, or has no limit
                limits.append(int((group / name).read_text()))
    return min(limits)


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    for group in _groups(cgroups, own, "cpu"):
        try:
            if (group / "cpu.max").is_file():
                quota, period = (group / "cpu.max").read_text().split()
            else:
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if quota != "max" and int(quota) > 0:  # version 1 writes -1 for no quota
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):  # the group is not mounted here, or has no limits
            continue


def _groups(cgroups: Path, own: Path, controller: str) -> Iterator[Path]:
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Version 2 has an empty list of controllers and is mounted at the top. Inside a container, the path may be that
        # of the host, and the limits then stand at the mount point.
        for mount in [cgroups / controllers, cgroups / controller] if controllers else [cgroups]:
            group = mount / path.lstrip("/")
            yield from (level for level in (group, *group.parents) if level.is_relative_to(mount))


def free_time(stat: Path = Path("/proc/stat")) -> tuple[float, float]:
    """Return the time, and the CPU seconds until then that were idle (0 if it is unknown) or of this process."""
    idle = 0.0
    with suppress(OSError, ValueError, IndexError, AttributeError):  # other systems than Linux
        lines = [line.split() for line in stat.read_text().splitlines()]
        cpus = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        idle = sum(int(line[4]) + int(line[5]) for line in lines if line[0] in cpus) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), time.process_time() + idle


# Commands import this module first. Two that are started together see each other's start, even if both sleep after it.
STARTED = free_time()


def idle_cpus() -> int:
    """Return the number of CPUs, at least 1, that others leave idle: in a quarter of a second, and since the start."""
    looks = [STARTED, free_time()]
    time.sleep(LOOK_S)
    now, free = free_time()
    idle = min((free - before) / (now - then) for then, before in looks if now - then < START_S)
    return max(1, min(available_cpus(), int(idle + 0.4)))  # small programs may take 0.4 of a CPU


STATUS, SIZES = Path("/proc/self/status"), Path("/proc/self/statm")


def resident_mb() -> float:
    """Return the resident memory of this process in MB (1e6 bytes): the current one on Linux, else the peak."""
    if not SIZES.exists():
        return peak_mb()
    return int(SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB (1e6 bytes), 0 on Windows."""
    if STATUS.exists():  # the peak of `getrusage` on Linux is at least the memory of the parent process
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return 0.0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes in one unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


# Class names of the out-of-memory errors of PyTorch and DuckDB. The names are compared instead of the classes, so that
# this module imports neither library. NumPy raises a MemoryError.
CLASSES = ("OutOfMemoryError", "OutOfMemoryException")
# Other libraries raise general exceptions, whose message contains one of these texts: PyTorch on a CPU, cuBLAS, ONNX
# Runtime, C++ code, and Python where it starts a thread or imports a library.
TEXT = re.compile(
    r"DefaultCPUAllocator|not enough memory|CUBLAS_STATUS_ALLOC_FAILED|Failed to allocate memory|bad_?\s?alloc"
    r"|Cannot allocate memory|can't start new thread|failed to map segment",
    re.IGNORECASE,
)

MEMORY_REMEDY = (
    "give it more memory, or lower what the command holds at once: batching.max_tokens in training, data.memory_limit "
    "in reading, threads in prediction"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if `error` is an out-of-memory error of PyTorch, NumPy, DuckDB or ONNX Runtime.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("size mismatch"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or type(error).__name__ in CLASSES or bool(TEXT.search(str(error)))
