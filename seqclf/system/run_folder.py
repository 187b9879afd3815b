"""One run per folder: a lock that ends with the process, and no run overwritten by accident."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError
from seqclf.system.atomic_files import UNFINISHED, sweep
from seqclf.system.file_locks import NO_LINK, call_in_child, is_at, lock

LOCK = ".seqclf.lock"  # not a name that another program has in its folder
MAX_HOLDER_BYTES = 512  # of the line in a lock that names its process
BEFORE_TRAINING = ("config.yaml", "quarantine.jsonl")  # the files of a run folder before its first epoch
DEBUG_RESULT = "debug.json"  # of a run that only looked at a model
PREDICTIONS = "predictions.parquet"  # of the evaluated rows
RESULTS = ("metrics.json", PREDICTIONS, "report.html", "bundle")  # of the checkpoint that a run evaluated last
OUTPUTS = (*RESULTS, "metrics.csv", "walkthrough.html", "tensorboard", DEBUG_RESULT)
# Set by the launchers of distributed runs: torchrun, Lightning, SLURM, LSF and MPI.
RANKS = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK")


def is_first_rank() -> bool:
    """Return whether this process leads its run. Other ranks belong to the run of the first, on any machine."""
    names = ["RANK"] if os.environ.get("RANK") else RANKS
    return all(os.environ.get(name, "0") in ("", "0") for name in names)


def run_outputs(run: Path) -> list[str]:
    """Return the names of the results that a run folder holds."""
    names = [name for name in OUTPUTS if (run / name).exists()]
    return names + sorted(f"checkpoints/{path.name}" for path in (run / "checkpoints").glob("*.ckpt"))


def is_resumed(run: Path, checkpoint: str | None) -> bool:
    """Return whether a checkpoint is in the folder of this run."""
    return checkpoint is not None and Path(checkpoint).resolve().parent.parent == run.resolve()


def remove_empty_folder(run: Path) -> None:
    """Remove the folder of a failed run if it is empty, and those above in the working folder that it was alone in."""
    working_folder = Path.cwd()
    if run.resolve() == working_folder:
        return
    with suppress(OSError):  # another failing run in the same folder was quicker, or the disk is read-only
        for folder in (run, *run.parents):
            inside = working_folder in folder.resolve().parents or folder == run
            if inside and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def claim_run_folder(run: Path, checkpoint: str | None, overwrite: bool) -> Iterator[None]:
    """Hold the folder of a training run while the block runs.

    Raises InputError if another live run holds it, or if it has results that `checkpoint` does not continue and
    `overwrite` does not replace. If the block ends before anything was trained, the files written so far are removed.
    """
    if not is_first_rank():
        yield
        return
    with locked(run):
        results = run_outputs(run)
        if results and not overwrite and not is_resumed(run, checkpoint):
            last = run / "checkpoints" / "last.ckpt"
            resume = f"resume it (checkpoint={last}), " if last.is_file() else ""
            raise InputError(
                f"hydra.run.dir={run}",
                f"holds a run already ({', '.join(results)})",
                f"name another folder, {resume}or replace it (overwrite=true)",
            )
        for folder in (run, run / "checkpoints"):
            sweep(folder, UNFINISHED)
        try:
            yield
        except (InputError, SystemExit):
            if not results and {path.name for path in run.iterdir()} <= {*BEFORE_TRAINING, LOCK}:
                for name in BEFORE_TRAINING:
                    (run / name).unlink(missing_ok=True)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder while the block runs.

    Raises InputError if another process holds it, or if the path of the lock is a link or no file.
    """
    path = folder / LOCK
    try:
        handle = _lock(path)
    except BlockingIOError:
        raise InputError(
            f"hydra.run.dir={folder}",
            f"another run holds this folder ({_holder(path)})",
            "wait for its end or name another",
        ) from None
    except OSError as error:
        raise InputError(f"hydra.run.dir={folder}", f"cannot be written ({error.strerror})", "name another") from None
    _HELD.add(handle)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before the lock ends, so that a process that opened the file earlier sees that it is gone
        _HELD.discard(handle)
        os.close(handle)


def _lock(path: Path) -> int:
    """Create and lock a file, and return its handle. Raises BlockingIOError if it is locked already."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_own_file(path)
        handle = os.open(path, os.O_CREAT | os.O_RDWR | NO_LINK, 0o666)
        try:
            # Without locks, two runs in one folder go unnoticed.
            if lock(handle) is False:
                raise BlockingIOError
            if is_at(handle, path):
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # another run ended, and removed the file, after we opened and before we locked it


def _require_own_file(path: Path) -> None:
    """Raise InputError if the file of a lock is a link: the lock empties it, and with it the file of somebody else."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise InputError(
                f"hydra.run.dir={path.parent}",
                f"its lock {path.name} is a link, or no regular file",
                f"remove {path}, or name another folder",
            )


def _holder(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | NO_LINK)
        try:
            content = os.read(handle, MAX_HOLDER_BYTES)
        finally:
            os.close(handle)
    except OSError:
        return "it is starting or ending"
    return content.decode(errors="replace").strip() or "it is starting"


_HELD: set[int] = set()


def _close_in_child() -> None:
    """Close the locks in a forked loader process, which would keep them after its run was killed."""
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


call_in_child(_close_in_child)
