"""A complete training run, from a validated config to a run folder, for the train command and for `seqclf.fit`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.report.description import show, write_run_page
from seqclf.report.reported import Reported
from seqclf.runs.folds import run_folds
from seqclf.runs.pipeline import run_steps
from seqclf.runs.prepare import open_data, prepare, read_config, reason_to_hold_out, set_up, write_json
from seqclf.runs.process_settings import process_settings
from seqclf.runs.ranks import ending_with_parent, join_ranks, only_rank_zero_prints, shared_run_folder
from seqclf.runs.run_files import read_facts, read_judged, read_result
from seqclf.runs.steps import export, fit, judge, report, score, warned
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.settings.decision_settings import AUTO
from seqclf.settings.train_settings import RuntimeOptions, TrainConfig
from seqclf.survey.outlook import show_outlook
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import (
    METRICS,
    RESULTS,
    SHARED,
    claim_run_folder,
    is_first_rank,
    remove_outputs,
    resume_advice,
    run_outputs,
)
from seqclf.system.signals import Terminated
from seqclf.system.state_validation import read_json
from seqclf.training.loggers.run_logger import LoggedRun, RunLogger, open_logger
from seqclf.training.resume import newest_checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainResult(JsonResult):
    """Result of `train`, printed as a JSON line.

    `split`: split that the model is judged by, also in the main metrics. `independent`: True if its rows chose nothing
    about the model and share no group and no time with earlier splits. `use`: True if there is no reason against using
    the model (see `reasons_against`). `bundle`, and `parity`, its largest difference from PyTorch: None without an
    export.
    """

    run: str
    epochs: int
    bundle: str | None
    split: str
    independent: bool
    use: bool
    loss: float
    accuracy: float
    recall: float
    precision: float
    f1: float
    parity: float | None
    train_s: float
    total_s: float

    @classmethod
    def read(cls, run: Path, config: TrainConfig, started: float) -> TrainResult:
        """Return the result of a finished run that began at `started` (see `time.perf_counter`)."""
        result, facts = read_result(run), read_facts(run, config.model_dump())
        bundle = run / "bundle" if config.export else None
        return cls(
            run=str(run),
            epochs=facts.epochs,
            bundle=None if bundle is None else str(bundle),
            split=result.split,
            independent=result.is_independent,
            use=not result.not_yet,
            **{name: round(getattr(result.metrics, name), 6) for name in MAIN_METRICS},
            parity=None if bundle is None else read_json(bundle / "parity.json")["max_error"],
            train_s=facts.seconds or 0.0,
            total_s=round(time.perf_counter() - started, 2),
        )


@dataclass(frozen=True)
class FastDevRunResult(JsonResult):
    """Result of `train trainer.fast_dev_run=…`, printed as a JSON line. Such a run evaluates nothing."""

    run: str
    fast_dev_run: bool = True


TrainingResult = TrainResult | FastDevRunResult | None


def run_training(config: TrainConfig, run: Path, *, prints_verdict: bool = True) -> TrainingResult:
    """Prepare the data, train a model, evaluate the model, and export it into the folder `run`.

    `prints_verdict`: True to print the scores and their interpretation. Returns `None` on ranks other than 0. Raises
    InputError if the folder holds another run, or if the data or settings cannot be used.
    """
    config, run = join_ranks(config), shared_run_folder(run)
    with ending_with_parent(), only_rank_zero_prints():
        if config.data.split.fold != ALL_FOLDS:
            return train_claimed(config, run, prints_verdict, config.runtime)
        started = time.perf_counter()
        run_folds(config, run, lambda one, folder: train_claimed(one, folder, False, config.runtime))
        return TrainResult.read(run, read_config(run), started)


def train_claimed(config: TrainConfig, run: Path, prints_verdict: bool, runtime: RuntimeOptions) -> TrainingResult:
    """Run the steps in a folder that no other run may use meanwhile. `runtime`: settings that the user gave."""
    if config.trainer["fast_dev_run"] and run_outputs(run):
        problem = "trains nothing to keep, and the folder holds a run"
        raise InputError("trainer.fast_dev_run", problem, "name another by hydra.run.dir")
    found, replaces = _find_checkpoint(config, run)
    with claim_run_folder(run, found.checkpoint, replaces), process_settings(runtime, config.seed):
        if not is_first_rank():
            training, _ = set_up(run, found)
            training.check()
            training.run()
            return None
        result = _train(found, run, prints_verdict)
        console.print(f"run: {shown_path(run)}", soft_wrap=True)
        return result


def _find_checkpoint(config: TrainConfig, run: Path) -> tuple[TrainConfig, bool]:
    """Return the config with the checkpoint to resume from, and True if the run may replace its folder.

    Without a checkpoint for `checkpoint=auto`, it may, unless the folder has complete results.
    """
    if config.checkpoint != AUTO:
        return config, config.overwrite
    checkpoint = newest_checkpoint(run / "checkpoints")
    if checkpoint is None:
        show_note(f"checkpoint=auto: no checkpoint in {run}, so the training starts from the beginning")
        unfinished = not any((run / name).exists() for name in RESULTS)
        return config.model_copy(update={"checkpoint": None}), config.overwrite or unfinished
    console.print(f"checkpoint=auto: resumes {checkpoint}", soft_wrap=True)
    return config.model_copy(update={"checkpoint": str(checkpoint)}), config.overwrite


def _train(given: TrainConfig, run: Path, prints_verdict: bool) -> TrainResult | FastDevRunResult:
    started = time.perf_counter()
    prepare(run, given)
    config = read_config(run)
    if prints_verdict:
        none = config.model_copy(update={"decision": config.decision.model_copy(update={"holdout": 0.0})})
        show_outlook(open_data(run, none), given.decision, given.model_dump(), reason_to_hold_out(config))
    with _logging(run, config) as logger:
        run_steps(run, config, [fit], logger=logger)
        if config.trainer["fast_dev_run"]:
            return FastDevRunResult(str(run))
        run_steps(run, config, [score, judge])
        if prints_verdict:
            show(Reported(result=read_result(run)))
        remove_outputs(run, () if config.export else ("bundle",))
        run_steps(run, config, [*([export] if config.export else []), report])
        if logger is not None:
            logger.log_result(finished_run(run, config))
    return TrainResult.read(run, config, started)


@contextmanager
def _logging(run: Path, config: TrainConfig) -> Iterator[RunLogger | None]:
    """Yield the logger of a run, and close it at the end of the block."""
    logger, failed = open_logger(config.model_dump()["logger"], run, config.model_dump()), True
    try:
        yield logger
        failed = False
    except Terminated as end:
        end.advice = resume_advice(run, config.checkpoint)
        raise
    finally:
        if logger is not None:
            logger.close(failed)


def finished_run(run: Path, config: TrainConfig) -> LoggedRun:
    """Return what loggers log at the end of a run: with `upload_rows=false`, a report in RUN/shared without rows."""
    result, facts, folder = read_judged(run, config.decision), read_facts(run, config.model_dump()), run
    rows = result.rows
    if not getattr(config.logger, "upload_rows", True):
        shared, folder = result.without_rows(), run / SHARED
        remove_outputs(run, [SHARED])
        folder.mkdir()
        write_json(folder / METRICS, shared.to_dict())
        with warned(run):
            unnamed = {split: part._replace(ids=None, group_names=None) for split, part in rows.items()}
            write_run_page(folder / "report.html", folder, None, replace(shared, rows=unnamed), facts)
        result = shared
    page = folder / "report.html"
    return LoggedRun(
        name=config.data.name,
        folder=run,
        epochs=facts.epochs,
        dataset=open_data(run, config),
        result=result,
        rows=rows,
        report=page if page.is_file() else None,
        bundle=run / "bundle" if config.export else None,
    )
