"""CPUs and memory that a process may use and uses, and how OpenMP waits."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from seqclf.system import resources
from seqclf.system.resources import available_cpus, available_memory


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def cpus(folder: Path, own: str, files: dict[str, str]) -> int:
    (folder / "own").write_text(own)
    for name, text in files.items():
        (folder / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "groups" / name).write_text(text)
    return available_cpus(folder / "groups", folder / "own")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 100000\n"}, 2),
        ("0::/a\n", {"a/cpu.max": "50000 100000\n"}, 1),
        ("0::/of/the/host\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/a\n", {"a/cpu.max": "nonsense\n"}, 8),
        (
            "4:cpu,cpuacct:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "200000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("4:cpuacct,cpu:/x\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("", {}, 8),
    ],
)
def test_quotas_limit_the_cpus(tmp_path: Path, own: str, files: dict[str, str], expected: int) -> None:
    assert cpus(tmp_path, own, files) == expected


def test_affinity_limits_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert cpus(tmp_path, "0::/\n", {"cpu.max": "400000 100000\n"}) == 2
    assert available_cpus(tmp_path, tmp_path / "missing") == 2


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "3000\n", "memory.max": "5000\n"}, 3000),
        ("5:memory:/x\n4:cpu:/y\n", {"memory/x/memory.limit_in_bytes": "2000", "cpu/y/memory.max": "7"}, 2000),
        ("5:memory:/x\n", {"memory/x/memory.limit_in_bytes": str(2**63 - 4096)}, psutil.virtual_memory().total),
        ("", {}, psutil.virtual_memory().total),
    ],
)
def test_containers_limit_the_memory(tmp_path: Path, own: str, files: dict[str, str], expected: int) -> None:
    cpus(tmp_path, own, files)
    assert available_memory(tmp_path / "groups", tmp_path / "own") == expected


@pytest.mark.parametrize(
    ("ticks", "own", "started", "expected"),
    [
        ((25, 0, 25), 0.0, (0.0, 0.0), 2),
        ((25, 0, 16), 0.0, (0.0, 0.0), 2),  # a small program
        ((25, 0, 14), 0.0, (0.0, 0.0), 1),
        ((0, 25, 0), 0.0, (0.0, 0.0), 1),  # the idle CPU is not of the affinity
        ((5, 0, 20), 0.25, (0.0, 0.0), 2),  # this process works
        ((25, 0, 25), 0.0, (999.0, 999.5), 1),  # busy at the start
        ((25, 0, 25), 0.0, (0.0, 999.5), 2),  # busy long ago
        ((), 0.25, (0.0, 0.0), 1),  # not counted
    ],
)
def test_idle_cpus_are_those_that_others_leave(monkeypatch, tmp_path, ticks, own, started, expected) -> None:
    clock, read = [1000.0, 1000.0], resources.free_time

    def sleep(seconds: float) -> None:
        clock[:] = [clock[0] + seconds, clock[1] + own]
        lines = [f"cpu{number} 9 9 9 {idle} 0 9 9 9" for number, idle in enumerate(ticks, start=3)]
        (tmp_path / "stat").write_text("\n".join(lines))

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    fakes = SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[1], sleep=sleep)
    monkeypatch.setattr(resources, "time", fakes)
    monkeypatch.setattr(resources, "free_time", lambda: read(tmp_path / "stat"))
    monkeypatch.setattr(resources, "STARTED", started)
    assert resources.idle_cpus() == expected


COMMAND = """
import os, sys
from seqclf.config.command import run
import seqclf.config.hydra_config as hydra_config
assert "torch" not in sys.modules
hydra_config.run_command = lambda *_: print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
run("train")
"""


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, resources.SPIN_COUNT), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_a_command_lets_waiting_threads_sleep_before_pytorch_is_loaded(own: dict[str, str], expected: str) -> None:
    plain = {key: value for key, value in os.environ.items() if key not in resources.OWN_SETTINGS}
    ended = subprocess.run([sys.executable, "-c", COMMAND], env={**plain, **own}, capture_output=True, text=True)
    assert ended.stdout.split() == [expected, "False"], ended.stderr


SCRIPT = """
from seqclf.system.resources import peak_mb, resident_mb
before = resident_mb()
block = bytearray(200 * 10**6)
with_block = resident_mb()
del block
print(before, with_block, resident_mb(), peak_mb())
"""


def test_the_peak_covers_memory_that_was_freed():
    ballast = bytearray(300 * 10**6)  # of the parent process, whose peak must not count
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, with_block, after, peak = map(float, done.stdout.split())
    assert with_block - before == pytest.approx(200, abs=5)
    assert after < before + 50
    assert with_block <= peak + 1 < with_block + 50
    del ballast
