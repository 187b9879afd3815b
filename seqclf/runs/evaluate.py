"""Evaluation of a trained task on every split: metrics.json, bundle, report and logs of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqclf.batching.datamodule import Batch, SequenceDataModule
from seqclf.config.targets import Config
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.baseline_scores import score_baseline
from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.choose_decision import choose_decision, uses_holdout
from seqclf.evaluation.comparison import RowPredictions, compare_models, deciding_metric
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.recommendation import Sampled, Training, baseline_alarm, next_step
from seqclf.evaluation.results import (
    BaselineCandidate,
    BaselineMetrics,
    Evaluation,
    SplitMetrics,
    SplitOutputs,
    calibration_of,
    evaluate_split,
)
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.tokens_curve import THRESHOLDS, CurveCounts, CurvePoint, TokensCurve
from seqclf.models.network import as_network
from seqclf.report.page import write_report
from seqclf.report.score_table import show_verdict
from seqclf.runs.export import write_bundle
from seqclf.runs.predictions import write_predictions
from seqclf.runs.report import best_epoch, run_mistakes, run_report
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.run_folder import PREDICTIONS
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger
from seqclf.training.module import SequenceTask
from seqclf.training.options import TrainConfig

# Inference with a trained task over a split.

MAX_LOGITS = 4_000_000  # of a curve that are kept at a time, over all thresholds


@torch.inference_mode()
def predict_logits(task: SequenceTask, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (N,) and logits (N, C) of all batches, in the order of the split.

    Raises InputError for logits of another shape, and for those that are not finite: they have no largest one.
    """
    task = task.eval()
    ids, labels, logits = [], [], []
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        batch_logits = task.logits_of(batch._replace(fields=fields, lengths=batch.lengths.to(task.device)))
        ids.append(batch.ids)
        labels.append(batch.labels.numpy())
        logits.append(batch_logits.cpu().numpy())
        progress.advance("rows", len(batch.ids))
    # Evaluation batches are sorted by length.
    order = np.argsort(np.concatenate(ids), kind="stable")
    ordered = np.concatenate(logits)[order]
    if broken := int((~np.isfinite(ordered)).any(axis=1).sum()):
        raise InputError(
            "the network",
            f"gives logits that are not finite for {broken} of {len(ordered)} rows",
            "train with debug=nan, which names the module and the rows",
        )
    return np.concatenate(labels)[order], ordered


@torch.inference_mode()
def tokens_curve(task: SequenceTask, batches: Iterable[Batch]) -> list[CurvePoint]:
    """Return the accuracy of an adaptive network at each of `THRESHOLDS`, in one pass over the batches."""
    task = task.eval()
    counts, thresholds = CurveCounts(len(task.classes)), torch.from_numpy(THRESHOLDS)
    most_rows = max(1, MAX_LOGITS // (len(THRESHOLDS) * len(task.classes)))
    for batch in batches:
        for start in range(0, len(batch.ids), most_rows):
            rows = slice(start, start + most_rows)
            fields = {name: values[rows].to(task.device) for name, values in batch.fields.items()}
            lengths, host_lengths = batch.lengths[rows].to(task.device), batch.host_lengths[rows]
            logits, read = task.model.at_thresholds(fields, lengths, host_lengths, thresholds)
            counts.update(logits.float().cpu().numpy(), read.cpu().numpy(), batch.labels[rows].numpy(), host_lengths)
        progress.advance("rows", len(batch.ids))
    return counts.points()


THRESHOLD = "threshold"  # name of the split of held-out validation rows


def evaluate_and_export(
    config: TrainConfig,
    plain: Config,
    dataset: Dataset,
    batches: SequenceDataModule,
    task: SequenceTask,
    run: Path,
    logger: RunLogger | None,
    history: Sequence[Mapping[str, Any]],
    data_warnings: Sequence[str],
    *,
    prints_verdict: bool,
) -> tuple[RunResult, Path | None, float | None]:
    """Evaluate a task, export it, and write metrics.json, predictions.parquet, report and logs.

    `plain`: the config as config.yaml holds it. `prints_verdict`: print the scores and what they mean. Returns the
    result, the bundle and the largest error of the exported model, which are None without an export.
    """
    halting = _set_halting(task, batches, dataset)
    evaluation, held_out = _evaluate(config, dataset, batches, task)
    bundle = run / "bundle" if config.export else None
    training = Training(
        settings=plain,
        epochs=len(history),
        best_epoch=best_epoch(history, task.trained_steps),
        bundle=None if bundle is None else str(bundle),
        predictions=str(run / PREDICTIONS),
    )
    temperature = fit_temperature(held_out.logits, held_out.labels)
    no_baseline = _no_baseline(config, dataset)
    result = RunResult(
        splits=_metrics(config, dataset, evaluation, len(history), halts=halting is not None),
        decision=evaluation.decision,
        calibration=calibration_of(evaluation.outputs, temperature, config.decision.calibrate),
        baseline=None if no_baseline is not None else _baseline(config, dataset, evaluation),
        no_baseline=no_baseline,
        data=dataset.report,
        leaks=dataset.leaks,
        holdout_rows=len(batches.splits[THRESHOLD].labels) if THRESHOLD in batches.splits else 0,
        trained_steps=task.trained_steps,
        halting=halting,
    )
    result = _with_baseline_alarm(result, training)
    step = next_step(result.metrics, result.split, result.decision, result.baseline, training)
    result = replace(result, next_step=step)
    write_output(run / "metrics.json", json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")
    if prints_verdict:
        show_verdict(result)
    parity = None
    if bundle is not None:
        parity = write_bundle(task, bundle, result).max_error
        console.print(f"bundle: {bundle}, differs from PyTorch by at most {parity:.1e}", soft_wrap=True)
    with progress.stage("writing the predictions"):
        evaluated = {name: rows for name, rows in evaluation.outputs.items() if name != "train"}
        evaluated |= {THRESHOLD: held_out} if THRESHOLD in batches.splits else {}
        labels = typed_labels(dataset.classes, dataset.schema.label_type)
        write_predictions(run / PREDICTIONS, batches.splits, evaluated, evaluation.decision, dataset.classes, labels)
    with progress.stage("explaining the worst errors"):
        mistakes = run_mistakes(dataset, evaluation, bundle)
    report_file: Path | None = run / "report.html"
    try:
        with progress.stage("writing the report"):
            report = run_report(plain, evaluation, result, history, data_warnings, mistakes)
            write_report(report, run / "report.html")
    except Exception as error:  # a page must never cost a trained model
        warnings.warn(f"report.html: {error!r}; the run goes on without it", stacklevel=2)
        report_file = None
    if logger is not None:
        logger.log_result(
            FinishedRun(
                name=config.data.name,
                folder=run,
                epochs=len(history),
                dataset=dataset,
                evaluation=evaluation,
                result=result,
                samples=[mistake.sample for mistake in mistakes],
                report=report_file,
                bundle=bundle,
            )
        )
    return result, bundle, parity


def _set_halting(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset) -> TokensCurve | None:
    """Set the threshold at which a network halts, by its curve on validation. None for one that reads everything."""
    if not as_network(task.model).halts:
        return None
    curves = {}
    for split in dataset.splits:
        if split != "train":
            with progress.stage(f"tokens read on {split}", total=len(dataset.splits[split].labels), unit="rows"):
                curves[split] = tokens_curve(task, batches.evaluation_loader(split))
    curve = TokensCurve.of_splits(curves)
    task.model.threshold = curve.threshold_of(None)
    return curve


def _evaluate(
    config: TrainConfig, dataset: Dataset, batches: SequenceDataModule, task: SequenceTask
) -> tuple[Evaluation, SplitOutputs]:
    """Run a task on every split and choose its decision.

    Returns the evaluation, and the outputs of the rows that set the threshold and the temperature.
    """
    outputs = {split: _outputs(task, batches, split) for split in dataset.splits}
    # Without held-out rows validation sets the threshold and the temperature, which `used_for` then says.
    held_out = _outputs(task, batches, THRESHOLD) if THRESHOLD in batches.splits else outputs["validation"]
    with progress.stage("choosing the decision threshold"):
        decision = choose_decision(
            config.decision,
            held_out.logits,
            held_out.labels,
            dataset.classes,
            dataset.positive,
            group_codes(held_out.groups),
            "sequence" if held_out.group_names is None else "group",
        )
    return Evaluation(outputs, decision), held_out


def _metrics(
    config: TrainConfig, dataset: Dataset, evaluation: Evaluation, epochs: int, halts: bool
) -> dict[str, SplitMetrics]:
    """Return the metrics of every split."""
    used = _used_for(config.decision, evaluation.decision.rule, epochs)
    used_for = {"validation": [*used, *(["halting threshold"] if halts else [])]}
    outputs = evaluation.outputs
    return {
        split: evaluate_split(
            rows,
            dataset.classes,
            dataset.positive,
            evaluation.decision,
            with_intervals=split != "train",  # training rows say nothing of new data
            used_for=used_for.get(split),
        )
        for split, rows in progress.track(outputs.items(), "computing confidence intervals", total=len(outputs))
    }


def _outputs(task: SequenceTask, batches: SequenceDataModule, split: str) -> SplitOutputs:
    """Run the model on a split."""
    rows = batches.splits[split]
    lengths = rows.lengths_before_truncation
    if not len(rows.sequences):  # every class has too few validation rows to hold one out
        classes = len(task.hparams["dataset"]["classes"])
        return SplitOutputs(np.empty((0, classes), np.float32), rows.labels, lengths, np.empty(0, bool))
    with progress.stage(f"evaluating on {split}", total=len(rows.labels), unit="rows"):
        labels, logits = predict_logits(task, batches.evaluation_loader(split))
    truncated = lengths > rows.sequences.lengths
    return SplitOutputs(logits, labels, lengths, truncated, rows.groups, rows.group_names)


def _used_for(options: DecisionOptions, rule: str, epochs: int) -> list[str]:
    """Choices that the validation rows made about the model, so that their metrics flatter it."""
    used = ["epoch"] if epochs > 1 else []
    if not uses_holdout(options, rule):
        used += ["threshold"] if rule != "argmax" else []
        used += ["temperature"] if options.calibrate else []
    return used


def _no_baseline(config: TrainConfig, dataset: Dataset) -> str | None:
    """Return why the order-blind model is left out, None if it is not."""
    if not config.baseline:
        return "baseline=false"
    tokens = sum(counts.tokens for counts in dataset.report.values())
    if tokens > config.baseline_limit:
        return f"{tokens:,} tokens are more than baseline_limit={config.baseline_limit}"
    return None


def _baseline(config: TrainConfig, dataset: Dataset, evaluation: Evaluation) -> BaselineMetrics:
    """Return the metrics of the order-blind model on the last split, and the model compared with it."""
    split, outputs = evaluation.split, evaluation.last
    scores, (rows, predictions) = score_baseline(dataset)
    positive = None if dataset.positive is None else dataset.classes.index(dataset.positive)
    model = RowPredictions(evaluation.predicted[rows], evaluation.probabilities[rows])
    group = group_codes(None if outputs.groups is None else outputs.groups[rows])
    # Validation chooses, by the metric that decides: test would flatter the chosen model, another metric this one.
    metric = deciding_metric(config.monitor)
    chosen, on_validation, on_last = (
        scores.best_model(metric),
        *(scores.values(metric, name) for name in (scores.judge, split)),
    )
    return BaselineMetrics(
        **vars(scores.models[chosen][split]),
        model=chosen,
        split=split,
        candidates=[
            BaselineCandidate(model=name, validation=on_validation[name], last=on_last[name]) for name in scores.models
        ],
        comparison=compare_models(outputs.labels[rows], model, predictions[chosen], positive, config.monitor, group),
    )


def _with_baseline_alarm(result: RunResult, training: Training) -> RunResult:
    """Return the result with an alarm on the last split where the model does not beat the baseline."""
    baseline, judged = result.baseline, result.metrics
    if baseline is None:
        return result
    alarm = baseline_alarm(baseline.comparison, Sampled.of(baseline.rows, judged.groups), training)
    if alarm is None:
        return result
    judged = replace(judged, alarms=[*judged.alarms, alarm])
    return replace(result, splits={**result.splits, result.split: judged})
