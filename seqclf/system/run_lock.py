"""One run per folder: a lock that ends with the process, and no run overwritten unasked."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError
from seqclf.system.atomic_files import SUFFIX, sweep

LOCK = ".lock"
BEFORE_TRAINING = ("config.yaml", "quarantine.jsonl")  # the files of a run folder before its first epoch
OUTPUTS = ("metrics.json", "metrics.csv", "report.html", "bundle", "tensorboard")
# Set by whoever starts the processes of a distributed run, Lightning's launcher included.
RANKS = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK")


def is_first_rank() -> bool:
    """Whether this process leads its run; other ranks, wherever they were started, belong to the run of the first."""
    names = ["RANK"] if os.environ.get("RANK") else RANKS
    return all(os.environ.get(name, "0") in ("", "0") for name in names)


def run_outputs(run: Path) -> list[str]:
    """The results of a run that a folder holds, by name."""
    names = [name for name in OUTPUTS if (run / name).exists()]
    return names + sorted(f"checkpoints/{path.name}" for path in (run / "checkpoints").glob("*.ckpt"))


def is_resumed(run: Path, checkpoint: str | None) -> bool:
    """Whether a checkpoint lies in the folder of this run."""
    return checkpoint is not None and Path(checkpoint).resolve().parent.parent == run.resolve()


@contextmanager
def claim_run_folder(run: Path, checkpoint: str | None, overwrite: bool) -> Iterator[None]:
    """Hold the folder of a training run.

    Raises InputError if another live run holds it, or if it holds results that neither `checkpoint` goes on with nor
    `overwrite` gives up. If the block ends before anything was trained, the files of a run's beginning are removed.
    """
    if not is_first_rank():
        yield
        return
    with locked(run):
        held = run_outputs(run)
        if held and not overwrite and not is_resumed(run, checkpoint):
            last = run / "checkpoints" / "last.ckpt"
            resume = f"go on with it (checkpoint={last}), " if last.is_file() else ""
            raise InputError(
                f"hydra.run.dir={run}: holds a run already ({', '.join(held)}); name another folder, {resume}"
                "or replace it (overwrite=true)"
            )
        for folder in (run, run / "checkpoints"):
            sweep(folder, f".*{SUFFIX}")
        try:
            yield
        except (InputError, SystemExit):
            if not held and {path.name for path in run.iterdir()} <= {*BEFORE_TRAINING, LOCK}:
                for name in BEFORE_TRAINING:
                    (run / name).unlink(missing_ok=True)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder; raises InputError if another process does."""
    path = folder / LOCK
    try:
        handle = _lock(path)
    except BlockingIOError:
        raise InputError(
            f"hydra.run.dir={folder}: another run holds this folder ({_holder(path)}); wait for its end or name another"
        ) from None
    except OSError as error:
        raise InputError(f"hydra.run.dir={folder}: cannot be written ({error.strerror}); name another") from None
    _HELD.add(handle)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while the lock is held: whoever opened it before sees that it is gone
        _HELD.discard(handle)
        os.close(handle)


def _lock(path: Path) -> int:
    """Create and lock a file. Raises BlockingIOError if it is locked already."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            _try_lock(handle)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its run ended and removed it between opening and locking


def _try_lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return  # a file system without locks; two runs in one folder go unnoticed there


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() or "it is starting"
    except OSError:
        return "it is starting or ending"


_HELD: set[int] = set()


def _close_in_child() -> None:
    """A forked loader process must not keep the lock of a run that was killed."""
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_close_in_child)
