"""A training run in five steps: prepare, fit, score, judge, export; then the report.

`prepare` has run already (see `run_training`). Each step leaves files in the run folder, which the next ones read.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.bundle.training_memory import Rows, TrainingMemory
from seqclf.data.encoding.strange_values import StrangeMeasures
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import sample_split, sampled_rows, subset
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.decisions.holdout import hold_out
from seqclf.evaluation.judge import FACTS, Facts, Judged, judge
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.evaluation.next_step import FinishedTraining
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.scores import FOLDER, Scores, write_contenders
from seqclf.report.run_report import best_epoch, read_run, write_run_report
from seqclf.report.score_table import show_verdict
from seqclf.runs.export import write_bundle
from seqclf.runs.finished_steps import FinishedSteps, file_hash, hash_of
from seqclf.runs.fit import Fitted, Training, finished_fit, fit, opened_run
from seqclf.runs.predictions import write_predictions
from seqclf.runs.score import score_contenders
from seqclf.runs.threshold_rows import asked_recipe, basis_of, cross_fits, cross_fitted
from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors, write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import FORCING, PREDICTIONS, SHARED, remove_outputs
from seqclf.training.loggers.run_logger import FinishedRun
from seqclf.training.options import TrainConfig

MEMORY_TOKENS = 2_000_000  # tokens that the memory of a bundle is computed from


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
    def of(cls, result: RunResult, facts: Facts, run: Path, parity: float | None, started: float) -> TrainResult:
        """Return the result of a run that began at `started` (see `time.perf_counter`)."""
        assert facts.training is not None, "a training"
        return cls(
            run=str(run),
            epochs=facts.training.epochs,
            bundle=None if parity is None else str(run / "bundle"),
            split=result.split,
            independent=result.is_independent,
            use=not result.not_yet,
            **{name: round(getattr(result.metrics, name), 6) for name in MAIN_METRICS},
            parity=parity,
            train_s=facts.training.seconds or 0.0,
            total_s=round(time.perf_counter() - started, 2),
        )


@dataclass(frozen=True)
class FastDevRunResult(JsonResult):
    """Result of `train trainer.fast_dev_run=…`, printed as a JSON line. Such a run evaluates nothing."""

    run: str
    fast_dev_run: bool = True


def train(
    config: TrainConfig,
    dataset: Dataset,
    run: Path,
    data_warnings: Sequence[str] = (),
    *,
    prints_verdict: bool = True,
) -> TrainResult | FastDevRunResult | None:
    """Train a model, judge its last step or best epoch (`monitor`) on every split, and export it into `run`.

    Call this function inside `process_settings`. Returns None on ranks other than 0. `data_warnings`: warnings of the
    survey, which the report shows. `prints_verdict`: True to print the scores and their interpretation.
    """
    started = time.perf_counter()
    training, steps = Training.build(config, hold_out(dataset, config.decision), run), FinishedSteps(run)
    known = finished_fit(training, steps)
    with opened_run(training, finished=known is not None) as logger:
        if known is not None:
            console.print("fit: finished before, with these settings and this data")
        fitted = known or fit(training, steps)
        if fitted is None:
            return FastDevRunResult(str(run)) if training.trainer.is_global_zero else None
        contenders, facts = score(fitted, steps, data_warnings)
        judged = judge_run(contenders, facts, training)
        if prints_verdict:
            show_verdict(judged.result)
        parity = export(fitted, judged, steps) if training.config.export else None
        page = report(training.dataset, judged, facts, run)
        if logger is not None:
            logger.log_result(
                finished_run(training, judged, facts, page and shared_report(training, judged, facts, page))
            )
    return TrainResult.of(judged.result, facts, run, parity, started)


def score(fitted: Fitted, steps: FinishedSteps, data_warnings: Sequence[str]) -> tuple[list[Scores], Facts]:
    """Score the trained task and the models beside it, and write the scores and facts into the run folder."""
    training, run = fitted.training, fitted.training.folder
    config = training.config
    models = [config.baseline, config.baseline_limit]
    parts = {"fit": training.inputs, "models": models, "cross_fits": cross_fits(config)}
    inputs = hash_of({"checkpoint": file_hash(fitted.checkpoint), **parts})
    if steps.find("score", inputs) is not None:
        with suppress(InputError):  # otherwise the files are made anew
            contenders, facts, _ = read_run(run)
            return contenders, _with_settings(facts, training)
    steps.forget("score", "export")
    shutil.rmtree(run / FOLDER, ignore_errors=True)
    contenders, facts = _score(fitted, data_warnings)
    write_contenders(run / FOLDER, contenders)
    state = {"models": [scores.name for scores in contenders], **facts.to_dict()}
    write_output(run / FOLDER / FACTS, json.dumps(state, indent=1, ensure_ascii=False) + "\n")
    steps.record("score", inputs, {})
    return contenders, _with_settings(facts, training)


def _with_settings(facts: Facts, training: Training) -> Facts:
    """Return facts with the settings of this command, and the bundle that it exports."""
    assert facts.training is not None, "a run"
    bundle = shown_path(training.folder / "bundle") if training.config.export else None
    return replace(facts, training=replace(facts.training, settings=training.config.model_dump(), bundle=bundle))


def _score(fitted: Fitted, data_warnings: Sequence[str]) -> tuple[list[Scores], Facts]:
    training, task = fitted.training, fitted.task
    config, dataset = training.config, training.dataset
    no_baseline = _no_baseline(config, dataset)
    contenders = score_contenders(task, training.batches, dataset, baseline=no_baseline is None)
    weighs = fitted.weighs_heads
    if cross_fits(config):
        contenders[-1] = cross_fitted(contenders[-1], task, dataset.splits["validation"], weighs_heads=weighs)
    contenders[-1] = replace(contenders[-1], basis=basis_of(contenders[-1], config, weighs_heads=weighs))
    return contenders, replace(_facts(fitted), no_baseline=no_baseline, warnings=tuple(data_warnings))


def _no_baseline(config: TrainConfig, dataset: Dataset) -> str | None:
    """Return the reason why the order-blind model is left out, None if it is scored."""
    if not config.baseline:
        return "baseline=false"
    tokens = sum(counts.tokens for counts in dataset.report.values())
    if tokens > config.baseline_limit:
        return f"{tokens:,} tokens are more than baseline_limit={config.baseline_limit}"
    return None


def _facts(fitted: Fitted) -> Facts:
    training, history, trained_steps = fitted.training, fitted.history, fitted.task.trained_steps
    config = training.config
    chosen = {
        "epoch": config.monitor is not None and len(history) > 1,
        "weights of the heads": fitted.weighs_heads and fitted.task.model.cross_fits(),
        "buffers of the network": fitted.weighs_heads and not fitted.task.model.cross_fits(),
    }
    return Facts(
        monitor=config.monitor,
        chosen=tuple(choice for choice, is_made in chosen.items() if is_made),
        training=FinishedTraining(
            settings={},
            epochs=len(history),
            best_epoch=best_epoch(history, trained_steps),
            steps=history[-1]["step"] if history else 0,
            seconds=round(fitted.seconds, 2),
            weights=sum(weight.numel() for weight in fitted.task.parameters()),
        ),
        data=training.dataset.report,
        leaks=training.dataset.leaks,
        trained_steps=trained_steps,
        history=tuple(history),
    )


def judge_run(contenders: Sequence[Scores], facts: Facts, training: Training) -> Judged:
    """Judge the scores of a run, and write metrics.json and predictions.parquet."""
    run, dataset = training.folder, training.dataset
    judged = judge(contenders, facts, training.config.decision)
    write_result(run, judged.result)
    network = contenders[-1]
    with progress.stage("writing the predictions"):
        outputs = {split: rows for split, rows in judged.outputs.items() if split != "train"}
        labels = typed_labels(network.classes, network.label_type)
        measures = StrangeMeasures(dataset.encoders)
        strange = {split: measures.measure(dataset.all_splits[split].sequences).columns for split in outputs}
        write_predictions(run / PREDICTIONS, outputs, judged.result.decision, network.classes, labels, strange)
    return judged


def write_result(run: Path, result: RunResult) -> None:
    """Write metrics.json, and threshold.parquet if rows force the threshold of a recall."""
    write_output(run / "metrics.json", json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")
    remove_outputs(run, [FORCING])
    if result.forcing:
        with explain_disk_errors(run / FORCING), atomic_replace(run / FORCING) as unfinished:
            pq.write_table(pa.Table.from_pylist([row.to_dict() for row in result.forcing]), unfinished)


def export(fitted: Fitted, judged: Judged, steps: FinishedSteps) -> float:
    """Write the bundle. Returns the largest difference between the exported model and PyTorch."""
    run, result = fitted.training.folder, judged.result
    inputs = hash_of({"checkpoint": file_hash(fitted.checkpoint), "result": result.to_dict()})
    known = steps.find("export", inputs)
    if known is not None and (run / "bundle" / "manifest.json").is_file():
        return float(known["parity"])
    recipe, memory = asked_recipe(fitted.training.config), training_memory(fitted.training.dataset, judged)
    parity = write_bundle(fitted.task, run / "bundle", result, recipe, memory).max_error
    bundle = shown_path(run / "bundle")
    console.print(f"bundle: {bundle}, differs from PyTorch by at most {parity:.1e}", soft_wrap=True)
    steps.record("export", inputs, {"parity": parity})
    return parity


def training_memory(dataset: Dataset, judged: Judged) -> TrainingMemory:
    """Return the memory of validation rows."""
    logits, whole = judged.outputs["validation"].logits, dataset.splits["validation"]
    some = sampled_rows(whole.sequences, MEMORY_TOKENS, 0)
    rows, training = subset(whole, some), sample_split(dataset.splits["train"], MEMORY_TOKENS, 0)
    probabilities = judged.result.decision.probabilities(logits[some])
    memory = TrainingMemory(dataset.encoders, dataset.classes, dataset.positive)
    memory.fit(Rows(rows.sequences, rows.lengths_before_truncation, probabilities, rows.groups), training.sequences)
    return memory


def report(dataset: Dataset | None, judged: Judged, facts: Facts, run: Path) -> Path | None:
    """Write report.html. Returns its path, None if that failed: a report must not lose a trained model."""
    try:
        write_run_report(run / "report.html", dataset, judged, facts, run)
    except Exception as error:
        warnings.warn(f"report.html: {error!r}; seqclf report run={run} writes it again", stacklevel=2)
        return None
    return run / "report.html"


def shared_report(training: Training, judged: Judged, facts: Facts, page: Path) -> Path | None:
    """Return the report that loggers upload: `page`, or a form in RUN/shared without rows of the data."""
    if getattr(training.config.logger, "upload_rows", True):
        return page
    folder = training.folder / SHARED
    remove_outputs(training.folder, [SHARED])
    folder.mkdir()
    without = judged._replace(result=judged.result.without_rows())
    write_output(folder / "metrics.json", json.dumps(without.result.to_dict(), indent=1, ensure_ascii=False) + "\n")
    return report(None, without, facts, folder)


def finished_run(training: Training, judged: Judged, facts: Facts, page: Path | None) -> FinishedRun:
    """Return what loggers log at the end. `page`: path of the report, None without one."""
    return FinishedRun(
        name=training.config.data.name,
        folder=training.folder,
        epochs=0 if facts.training is None else facts.training.epochs,
        dataset=training.dataset,
        evaluation=judged.evaluation,
        result=judged.result,
        report=page,
        bundle=training.folder / "bundle" if training.config.export else None,
    )
