"""Protection of the folder of a training run: only one run at a time, and no overwriting of earlier results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError
from seqclf.system.atomic_files import UNFINISHED, call_in_child, explain_disk_errors, lock_file, remove_lock, sweep

LOCK = ".seqclf.lock"  # lock file; no other program uses this name
FAILURE = ".seqclf.error"  # file with the error line of a failed job of a multirun
BEFORE_TRAINING = ("config.yaml", "data.json", "quarantine.jsonl")  # files that a run writes before its first epoch
PREDICTIONS = "predictions.parquet"  # predictions for the evaluated rows
SUSPECTS = "suspects.parquet"  # rows whose label the model contradicts
FORCING = "threshold.parquet"  # rows that force the threshold of a recall
SHARED = "shared"  # folder of a report and metrics.json without rows of the data, which loggers upload
MODEL = "model.ckpt"  # the finished model, with what validation rows set
METRICS, CURVES = "metrics.json", "metrics.csv"  # the result of a run, and the scores of its epochs
DATA = "data.json"  # what is known about the data of a run
FIT = "fit.json"  # what is known about its training
STEPS = "steps.json"  # record of the finished steps of a run
# What a run makes of its checkpoints.
RESULTS = (MODEL, FIT, "scores", METRICS, PREDICTIONS, SUSPECTS, FORCING, SHARED, "report.html", "bundle", STEPS)
FOLD = "fold-"  # beginning of the name of the folder of a fold (data.split.fold=all)
OUTPUTS = (*RESULTS, CURVES, "tensorboard")
# Environment variables of torchrun, Lightning and Slurm that hold the rank of a process in distributed training.
RANKS = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


def is_first_rank() -> bool:
    """Return True if this process has rank 0 in a distributed run, or if the run is not distributed."""
    names = ["RANK"] if os.environ.get("RANK") else RANKS
    return all(os.environ.get(name, "0") in ("", "0") for name in names)


def run_outputs(run: Path) -> list[str]:
    """Return the names of the results, checkpoints and folds that exist in a run folder."""
    names = [name for name in OUTPUTS if (run / name).exists()]
    names += sorted(path.name for path in run.glob(f"{FOLD}[0-9]*"))
    return names + sorted(f"checkpoints/{path.name}" for path in (run / "checkpoints").glob("*.ckpt"))


def remove_outputs(run: Path, names: Iterable[str]) -> None:
    """Remove files and folders of a run folder, but not what a link leads to, or raise InputError."""
    for name in names:
        path = run / name
        with explain_disk_errors(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def is_resumed(run: Path, checkpoint: str | None) -> bool:
    """Return True if `checkpoint` is a checkpoint file in the run folder `run`."""
    return checkpoint is not None and Path(checkpoint).resolve().parent.parent == run.resolve()


def resume_advice(run: Path, checkpoint: str | None) -> str:
    """Return advice on resuming a run after its end. `checkpoint`: the one that it resumed from, or None."""
    paths = (run / "checkpoints" / "last.ckpt", *([] if checkpoint is None else [Path(checkpoint)]))
    found = next((path for path in paths if path.is_file()), None)
    return "no step was trained; start again" if found is None else f"resume with checkpoint={found}"


def remove_empty_folder(run: Path) -> None:
    """Remove the folder of a failed run and its parent folders inside the working folder, if they are empty."""
    working_folder = Path.cwd()
    if run.resolve() == working_folder:
        return
    with suppress(OSError):  # another failed run may have removed the folder, and the disk may be read-only
        for folder in (run, *run.parents):
            inside = working_folder in folder.resolve().parents or folder == run
            if inside and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def claim_run_folder(run: Path, checkpoint: str | None, overwrite: bool) -> Iterator[None]:
    """Lock the folder of a training run while the `with` block runs.

    If the run fails before its first epoch, the files that it wrote are removed, unless the folder had results before.
    Raises InputError if another run has locked the folder, or if it has results, unless `overwrite` is true or
    `checkpoint`, from which the run resumes, is in the folder.
    """
    if not is_first_rank():
        yield
        return
    with locked(run):
        results = run_outputs(run)
        if results and not overwrite and not is_resumed(run, checkpoint):
            last = run / "checkpoints" / "last.ckpt"
            found = str(last) if last.is_file() else "auto" if (run / f"{FOLD}0").is_dir() else None
            resume = f"resume it (checkpoint={found}), " if found else ""
            remedy = f"name another folder, {resume}or replace it (overwrite=true)"
            raise InputError(f"hydra.run.dir={run}", f"holds a run already ({', '.join(results)})", remedy)
        for folder in (run, run / "checkpoints"):
            sweep(folder, UNFINISHED)
        (run / FAILURE).unlink(missing_ok=True)
        try:
            yield
        except (InputError, SystemExit):
            if not results and {path.name for path in run.iterdir()} <= {*BEFORE_TRAINING, LOCK}:
                for name in BEFORE_TRAINING:
                    (run / name).unlink(missing_ok=True)
            raise


@contextmanager
def locked(folder: Path, where: str | None = None, what: str = "this folder") -> Iterator[None]:
    """Hold the lock of a folder, which is created, or raise InputError for the setting `where`, by default of a run."""
    path, where = folder / LOCK, where or f"hydra.run.dir={folder}"
    try:
        handle = lock_file(path)
    except BlockingIOError:
        raise InputError(where, f"another run holds {what}", "wait for its end or name another") from None
    except OSError as error:
        raise InputError(where, f"cannot be written ({error.strerror})", "name another") from None
    _HELD.add(handle)
    try:
        yield
    finally:
        _HELD.discard(handle)
        remove_lock(handle, path)


_HELD: set[int] = set()


def _close_in_child() -> None:
    """A data loader worker that outlives a killed run would keep the run folder locked."""
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


call_in_child(_close_in_child)
