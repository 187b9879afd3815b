"""The steps of a run, what each of them reads and writes, and how a killed run goes on without repeating them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from seqclf.config.build import is_foreign, package_of, targets
from seqclf.documents.terminal import console
from seqclf.evaluation.score_files import FOLDER
from seqclf.runs.prepare import prepare
from seqclf.runs.ranks import torchrun_ranks
from seqclf.runs.steps import export, fit, judge, report, score
from seqclf.settings.train_settings import TrainConfig
from seqclf.system.atomic_files import write_output
from seqclf.system.run_folder import (
    CURVES,
    DATA,
    FIT,
    FORCING,
    METRICS,
    MODEL,
    PREDICTIONS,
    SHARED,
    STEPS,
    SUSPECTS,
    remove_outputs,
)
from seqclf.system.state_validation import read_json
from seqclf.system.version import __version__

LIBRARIES = ("torch", "lightning", "torchmetrics")  # a class of these does not change under a run


Step = Callable[[Path, TrainConfig], None]


class Inputs(NamedTuple):
    """Keys of the config that a step reads, beside those of the steps before, and files that it reads and writes.

    `may_write`: files that it writes for some results only.
    """

    keys: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    may_write: tuple[str, ...] = ()


MODEL_KEYS = ("data", "model", "loss", "optimizer", "batching", "structure", "start")
MONITOR_KEYS = ("metrics", "monitor", "patience", "head_patience")
FIT_KEYS = (*MODEL_KEYS, *MONITOR_KEYS, "trainer", "seed", "checkpoint_every", "runtime")
TABLE: dict[Step, Inputs] = {
    prepare: Inputs(("checkpoint", "overwrite", "logger"), (), ("config.yaml", DATA)),
    fit: Inputs(FIT_KEYS, (DATA,), (MODEL, FIT, CURVES)),
    score: Inputs(("decision", "baseline", "baseline_limit"), (DATA, MODEL, FIT), (FOLDER,)),
    judge: Inputs(("export",), (DATA, FIT, CURVES, FOLDER), (METRICS, PREDICTIONS, SUSPECTS), (FORCING,)),
    export: Inputs((), (DATA, MODEL, FOLDER, METRICS), ("bundle",)),
    report: Inputs((), (DATA, FIT, CURVES, FOLDER, METRICS, "bundle"), ("report.html",)),
}


def run_steps(run: Path, config: TrainConfig, steps: Sequence[Step], **of_fit: Any) -> None:
    """Run the steps that are not finished with these inputs. `of_fit`: further arguments of the step `fit`.

    A step is finished if its keys, what it reads and what it wrote are as they were; the data and the code of other
    packages belong to what `fit` reads. `prepare` always runs, because only it knows whether the data is the same.
    Before a step runs, what it and later ones wrote is removed, so that all files are of one result.
    """
    for step in steps:
        name, inputs, finished = step.__name__, _inputs_hash(run, step, config), _read_steps(run)
        # `prepare` is never skipped, and no training for which the other ranks of torchrun wait.
        may_be_skipped = step is not prepare and (step is not fit or torchrun_ranks() is None)
        if may_be_skipped and finished.get(name) == {"inputs": inputs, "files": _written(run, step)}:
            if step is fit:
                console.print("fit: finished before, with these settings and this data")
            continue
        if step is not prepare:  # which removes another run itself, once it has checked everything
            later = list(TABLE)[list(TABLE).index(step) :]
            kept = {each: known for each, known in finished.items() if each not in {one.__name__ for one in later}}
            if kept != finished:  # a new run has no record until its first step is finished
                _write_steps(run, kept)
            stale = [file for each in later for file in (*TABLE[each].writes, *TABLE[each].may_write)]
            remove_outputs(run, [*stale, SHARED])
        step(run, config, **(of_fit if step is fit else {}))
        if _is_complete(run, step):
            _write_steps(run, {**_read_steps(run), name: {"inputs": inputs, "files": _written(run, step)}})


def _is_complete(run: Path, step: Step) -> bool:
    if not all((run / name).exists() for name in TABLE[step].writes):  # a report may fail
        return False
    return step is not fit or bool(read_json(run / FIT)["is_complete"])


def _inputs_hash(run: Path, step: Step, config: TrainConfig) -> str:
    plain, before = config.model_dump(), list(TABLE)[1 : list(TABLE).index(step) + 1]
    keys = {key: plain[key] for each in before for key in TABLE[each].keys}
    files = {name: _content_hash(run / name) for name in TABLE[step].reads}
    code = code_hashes(keys) if step is fit else {}
    return hash_of({"config": keys, "files": files, "version": __version__, "code": code})


def _content_hash(path: Path) -> str | None:
    if path.name != DATA:
        return file_hash(path)
    with suppress(OSError, ValueError):
        return hash_of({key: value for key, value in read_json(path).items() if key != "folder"})  # which may move
    return None


def _written(run: Path, step: Step) -> list[str | None]:
    return [file_hash(run / name) for name in (*TABLE[step].writes, *TABLE[step].may_write)]


def _read_steps(run: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):  # an unreadable file means that no step is finished
        content = read_json(run / STEPS)
        return dict(content) if isinstance(content, Mapping) else {}
    return {}


def _write_steps(run: Path, finished: Mapping[str, Any]) -> None:
    write_output(run / STEPS, json.dumps(finished, indent=1) + "\n")


def code_hashes(settings: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """Return the hashes of the files of each package of somebody else that settings name."""
    foreign = {package_of(target) for _, target in targets(settings, "") if is_foreign(target)}
    return {package: _hashes_of(package) for package in foreign - set(LIBRARIES)}


def _hashes_of(package: str) -> list[str | None]:
    modules = (module for name, module in sorted(sys.modules.items()) if package_of(name) == package)
    paths = (str(getattr(module, "__file__", None) or "") for module in modules)
    return [file_hash(Path(path)) for path in paths if path and "site-packages" not in path]


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 hash of a file, or of all files of a folder, None if they cannot be read."""
    try:
        if path.is_dir():
            return hash_of({str(part.relative_to(path)): file_hash(part) for part in path.rglob("*") if part.is_file()})
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
