"""Evaluation of a trained task on every split: writes metrics.json, bundle, report and logs of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.targets import Config
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console
from seqclf.evaluation.alarms import WEAK_THRESHOLD
from seqclf.evaluation.baselines.baseline_alarms import Sampled, baseline_alarms
from seqclf.evaluation.calibration import fit_temperature, softmax
from seqclf.evaluation.decisions.choose_decision import choose_decision, uses_holdout
from seqclf.evaluation.decisions.decision import Decision
from seqclf.evaluation.decisions.target_table import target_rows
from seqclf.evaluation.ladder import SHUFFLED, Contender, most_probable
from seqclf.evaluation.next_step import FinishedTraining, next_step
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.refit import Refit
from seqclf.evaluation.results import (
    Evaluation,
    SplitMetrics,
    SplitOutputs,
    calibration_of,
    evaluate_split,
)
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.tokens_curve import TokensCurve
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.report.page import write_report
from seqclf.report.score_table import show_verdict
from seqclf.runs.export import write_bundle
from seqclf.runs.inference import predict_logits, predict_parts, tokens_curve
from seqclf.runs.ladder import compare_with_simpler
from seqclf.runs.predictions import write_predictions
from seqclf.runs.report import best_epoch, run_mistakes, run_report
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.run_folder import PREDICTIONS
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger
from seqclf.training.module import SequenceTask
from seqclf.training.options import TrainConfig

MAX_TOKENS_OF_PARTS = 2_000_000  # tokens of the last split up to which parts of the network are scored alone
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
    shuffled: Contender | None,
    *,
    earlier: Mapping[str, SplitOutputs] | None = None,
    refit: Refit | None = None,
    padding_error: float | None = None,
    weighs_heads: bool = False,
    prints_verdict: bool,
) -> tuple[RunResult, Path | None, float | None]:
    """Evaluate a task, export it, and write metrics.json, predictions.parquet, report and logs.

    `plain`: config as config.yaml holds it. `earlier`: outputs of the model before a refit, for the splits that trained
    the refitted model, and for the held-out rows. `refit`: record of the refit, None without one. `padding_error`:
    see `RunResult`. `weighs_heads`: True if validation rows set the weights of heads.
    `prints_verdict`: True to print the scores and their interpretation.
    Returns the result, the path of the bundle, and the largest difference between the exported model and PyTorch. The
    path and the difference are None without an export.
    """
    halting = set_halting(task, batches, dataset)
    evaluation, held_out = _evaluate(config, dataset, batches, task, earlier or {})
    before = _before_refit(config, dataset, earlier or {})
    bundle = run / "bundle" if config.export else None
    temperature = fit_temperature(held_out.logits, held_out.labels)
    no_baseline = _no_baseline(config, dataset)
    decisions = {**dict.fromkeys(evaluation.outputs, evaluation.decision), **before.decisions}
    metrics = _metrics(
        config, dataset, evaluation, decisions, _choices(config, len(history), halting is not None, weighs_heads)
    )
    between = {} if shuffled is None else {SHUFFLED: shuffled}
    between |= _parts_alone(task, batches, evaluation.split)
    compared = compare_with_simpler(
        *(config, dataset, evaluation, metrics[evaluation.split], between), with_baseline=no_baseline is None
    )
    result = RunResult(
        splits=metrics,
        decision=evaluation.decision,
        calibration=calibration_of(evaluation.outputs, temperature, config.decision.calibrate, before.temperatures),
        baseline=compared.baseline,
        no_baseline=no_baseline,
        ladder=compared.ladder,
        targets=tuple(target_rows(evaluation.decision, held_out, dataset.classes)),
        data=dataset.report,
        leaks=dataset.leaks,
        holdout_rows=len(batches.splits[THRESHOLD].labels) if THRESHOLD in batches.splits else 0,
        trained_steps=task.trained_steps,
        halting=halting,
        refit=refit,
        padding_error=padding_error,
    )
    result = _with_baseline_alarms(result)
    training = FinishedTraining(
        settings=plain,
        epochs=len(history),
        best_epoch=best_epoch(history, result.chosen_step),
        steps=history[-1]["step"] if history else 0,
        bundle=None if bundle is None else shown_path(bundle),
    )
    result = replace(result, next_step=next_step(result, training))
    write_output(run / "metrics.json", json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")
    if prints_verdict:
        show_verdict(result)
    parity = None
    if bundle is not None:
        parity = write_bundle(task, bundle, result).max_error
        console.print(f"bundle: {shown_path(bundle)}, differs from PyTorch by at most {parity:.1e}", soft_wrap=True)
    with progress.stage("writing the predictions"):
        evaluated = {name: rows for name, rows in evaluation.outputs.items() if name != "train"}
        evaluated |= {THRESHOLD: held_out} if THRESHOLD in batches.splits else {}
        labels = typed_labels(dataset.classes, dataset.schema.label_type)
        decisions[THRESHOLD] = evaluation.decision
        write_predictions(run / PREDICTIONS, batches.splits, evaluated, decisions, dataset.classes, labels)
    with progress.stage("explaining the worst errors"):
        mistakes = run_mistakes(dataset, evaluation, bundle)
    report_file: Path | None = run / "report.html"
    try:
        with progress.stage("writing the report"):
            report = run_report(plain, evaluation, result, history, data_warnings, mistakes)
            write_report(report, run / "report.html")
    except Exception as error:  # an error in the report must not lose a trained model
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
                report=report_file,
                bundle=bundle,
            )
        )
    return result, bundle, parity


def set_halting(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset) -> TokensCurve | None:
    """Set the halting threshold of a network by its validation curve. Returns None for a network that never halts."""
    if not task.model.halts:
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
    config: TrainConfig,
    dataset: Dataset,
    batches: SequenceDataModule,
    task: SequenceTask,
    earlier: Mapping[str, SplitOutputs],
) -> tuple[Evaluation, SplitOutputs]:
    """Run a task on every split and choose its decision. `earlier`: dict split → outputs that are known already.

    Held-out rows set the threshold of a refitted task too, because it was not trained on them. The guarantee is about
    the scores of the exported model. Without held-out rows, the threshold is that of the model before the refit.

    Returns the evaluation, and the outputs for the rows that set the threshold and the temperature.
    """
    outputs = {split: earlier.get(split) or split_outputs(task, batches, split) for split in dataset.splits}
    # Without held-out rows, the validation rows set the threshold and the temperature. `used_for` then reports this.
    held_out = split_outputs(task, batches, THRESHOLD) if THRESHOLD in batches.splits else outputs["validation"]
    return Evaluation(outputs, _choose(config, dataset, held_out)), held_out


def _choose(config: TrainConfig, dataset: Dataset, held_out: SplitOutputs) -> Decision:
    with progress.stage("choosing the decision threshold"):
        return choose_decision(
            config.decision,
            held_out.logits,
            held_out.labels,
            dataset.classes,
            dataset.positive,
            group_codes(held_out.groups),
            "sequence" if held_out.group_names is None else "group",
        )


class _Before(NamedTuple):
    """Decision and temperature by split of the model before a refit, where they are not those of the exported model."""

    decisions: Mapping[str, Decision]
    temperatures: Mapping[str, float]


def _before_refit(config: TrainConfig, dataset: Dataset, earlier: Mapping[str, SplitOutputs]) -> _Before:
    """Return what held-out rows choose for the model before a refit. Its splits are judged by its own decision."""
    if THRESHOLD not in earlier:
        return _Before({}, {})
    splits, held_out = earlier.keys() - {THRESHOLD}, earlier[THRESHOLD]
    return _Before(
        dict.fromkeys(splits, _choose(config, dataset, held_out)),
        dict.fromkeys(splits, fit_temperature(held_out.logits, held_out.labels)),
    )


def _metrics(
    config: TrainConfig,
    dataset: Dataset,
    evaluation: Evaluation,
    decisions: Mapping[str, Decision],
    choices: list[str],
) -> dict[str, SplitMetrics]:
    """Return the metrics of every split. `choices`: choices that validation made beside those of the decision."""
    used_for = {"validation": [*choices, *_used_for(config.decision, evaluation.decision.rule)]}
    outputs = evaluation.outputs
    return {
        split: evaluate_split(
            rows,
            dataset.classes,
            dataset.positive,
            decisions[split],
            with_intervals=split != "train",  # training rows do not represent new data
            used_for=used_for.get(split),
        )
        for split, rows in progress.track(outputs.items(), "computing confidence intervals", total=len(outputs))
    }


def split_outputs(task: SequenceTask, batches: SequenceDataModule, split: str) -> SplitOutputs:
    """Run the model on a split."""
    rows = batches.splits[split]
    if not len(rows.sequences):  # there are no held-out rows, because every class has too few validation rows
        classes = len(task.hparams["dataset"]["classes"])
        return _outputs(rows, np.empty((0, classes), np.float32))
    with progress.stage(f"evaluating on {split}", total=len(rows.labels), unit="rows"):
        return _outputs(rows, predict_logits(task, batches.evaluation_loader(split))[1])


def _outputs(rows: Split, logits: np.ndarray) -> SplitOutputs:
    lengths = rows.lengths_before_truncation
    return SplitOutputs(logits, rows.labels, lengths, lengths > rows.sequences.lengths, rows.groups, rows.group_names)


def _parts_alone(task: SequenceTask, batches: SequenceDataModule, split: str) -> dict[str, Contender]:
    """Return the parts of a network as models of their own, none for a split that takes long to read."""
    if batches.splits[split].sequences.offsets[-1] > MAX_TOKENS_OF_PARTS:
        return {}
    logits = predict_parts(task, batches.evaluation_loader(split))
    return {name: Contender("head alone", most_probable(softmax(values))) for name, values in logits.items()}


def _choices(config: TrainConfig, epochs: int, halts: bool, weighs_heads: bool) -> list[str]:
    """Return the choices that validation rows made about the model, beside those of the decision."""
    made = {
        "epoch": config.monitor is not None and epochs > 1,
        "halting threshold": halts,
        "weights of the heads": weighs_heads,
    }
    return [choice for choice, is_made in made.items() if is_made]


def _used_for(options: DecisionOptions, rule: str) -> list[str]:
    """Return the choices of the decision (threshold, temperature) that validation rows made."""
    used = []
    if not uses_holdout(options, rule):
        used += ["threshold"] if rule != "argmax" else []
        used += ["temperature"] if options.calibrate else []
    return used


def _no_baseline(config: TrainConfig, dataset: Dataset) -> str | None:
    """Return the reason why the order-blind model is left out, None if it is evaluated."""
    if not config.baseline:
        return "baseline=false"
    tokens = sum(counts.tokens for counts in dataset.report.values())
    if tokens > config.baseline_limit:
        return f"{tokens:,} tokens are more than baseline_limit={config.baseline_limit}"
    return None


def _with_baseline_alarms(result: RunResult) -> RunResult:
    """Return the result, with alarms on the last split if the model does not beat the baseline."""
    baseline, judged = result.baseline, result.metrics
    if baseline is None:
        return result
    sampled = Sampled.of(baseline.rows, judged.groups)
    alarms = baseline_alarms(baseline.comparison, result.decision, sampled)
    # The threshold is what people run, so its alarms come first.
    alarms = sorted([*judged.alarms, *alarms], key=lambda alarm: alarm.kind != WEAK_THRESHOLD)
    judged = replace(judged, alarms=alarms)
    return replace(result, splits={**result.splits, result.split: judged})
