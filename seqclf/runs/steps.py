"""The steps of a run after `prepare`: fit, score, judge, export and report. Each reads the files of the ones before."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.data.encoding.row_checks import StrangeMeasures
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import THRESHOLD, Dataset
from seqclf.data.storage.store import Split, sample_split, sampled_rows, subset
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console
from seqclf.evaluation.decision import CHOSEN, CROSS_FITTED, HELD_OUT, Decision
from seqclf.evaluation.holdout import fifths
from seqclf.evaluation.judge import judge as judge_scores
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.score_files import FOLDER, read_run_scores, write_run_scores
from seqclf.evaluation.scores import Scores
from seqclf.evaluation.suspects import suspects_of, unseen_rows
from seqclf.models.ensemble import networks_of
from seqclf.report.description import write_run_page
from seqclf.runs.bundle_export import write_bundle
from seqclf.runs.prepare import (
    all_rows_set_thresholds,
    open_data,
    read_config,
    reason_to_hold_out,
    user_recipe,
    write_json,
)
from seqclf.runs.row_outputs import score_models, write_predictions
from seqclf.runs.run_files import no_baseline, read_facts, read_judged, read_result
from seqclf.runs.training_run import Training, device_of, trusted
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.settings.decision_settings import AUTO
from seqclf.settings.train_settings import TrainConfig
from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import FIT, FOLD, FORCING, METRICS, MODEL, PREDICTIONS, SUSPECTS, remove_outputs
from seqclf.system.state_validation import read_json
from seqclf.training.loggers.run_logger import RunLogger
from seqclf.training.own_metrics import OwnMetrics
from seqclf.training.resume import rows_of
from seqclf.training.task import SequenceTask, load_task, save_model

REFERENCE_TOKENS = 2_000_000  # tokens that the reference data of a bundle are computed from


def fit(run: Path, config: TrainConfig, *, logger: RunLogger | None = None) -> None:
    """Train, and let validation rows set what they set after it → checkpoints/, metrics.csv, model.ckpt, fit.json.

    A training of `trainer.fast_dev_run` leaves no model.
    """
    training = Training.build(config, open_data(run, config), run)
    weights = sum(weight.numel() for weight in training.task.parameters())
    console.print(f"model: {weights:,} weights on {training.device}, threads: {training.threads}")
    training.trainer.loggers = [] if logger is None else [logger.curves]
    started = time.perf_counter()
    training.run()
    if config.trainer["fast_dev_run"]:
        return
    seconds = time.perf_counter() - started
    task = training.load(training.checkpoint())
    chosen, before = fit_to_validation(task, training.dataset.splits["validation"])
    save_model(run / MODEL, task, len(training.hooks.record.history), before)
    facts = {"step": task.trained_steps, "seconds": round(seconds, 2), "weights": weights, "by_validation": chosen}
    # What a callback stopped goes on in a resumed run.
    write_json(run / FIT, {**facts, "is_complete": training.has_reached_limit})


def fit_to_validation(task: SequenceTask, validation: Split) -> tuple[str | None, dict[str, Tensor]]:
    """Let a trained network read the validation rows.

    Returns what they set in words, None if they set nothing, and the buffers that they set, with the values before.
    """
    rows, before = rows_of(task, validation), {name: buffer.clone() for name, buffer in task.model.named_buffers()}
    found = [part.fit_to_validation(rows) for part in networks_of(task.model)] if len(rows) else []
    texts = [text for text in found if text is not None]
    if not texts:
        return None, {}
    chosen = networks_of(task.model)[0].set_by_validation
    console.print(f"{chosen}: {'; '.join(texts)}", soft_wrap=True)
    return chosen, {name: old for name, old in before.items() if not torch.equal(old, task.model.get_buffer(name))}


def score(run: Path, config: TrainConfig) -> None:
    """Apply the model, and those beside it, to all rows → scores/."""
    dataset, device = open_data(run, config), device_of(config.trainer)
    task = load_task(run / MODEL, trust=trusted(config.model_dump())).to(device)
    batches = SequenceDataModule(dataset.all_splits, config.batching, seed=config.seed)
    is_compared = no_baseline(config.model_dump(), dataset.report) is None
    models = score_models(task, batches, dataset, baseline=is_compared)
    weighs = read_json(run / FIT)["by_validation"] is not None
    if all_rows_set_thresholds(config):
        models[-1] = cross_fitted(models[-1], task, dataset.splits["validation"], weighs_heads=weighs)
    models[-1] = replace(models[-1], basis=basis_of(models[-1], config, weighs_heads=weighs))
    write_run_scores(run / FOLDER, models)


def cross_fitted(network: Scores, task: SequenceTask, validation: Split, *, weighs_heads: bool) -> Scores:
    """Return scores with the fifth of each validation row, and the split `threshold` of all validation rows.

    Its logits are cross-fitted if validation set weights of heads (`weighs_heads`).
    """
    outputs = network.splits["validation"]._replace(fold=fifths(validation.labels, validation.groups))
    logits: np.ndarray | None = outputs.logits
    if weighs_heads:
        logits = task.model.cross_fitted_logits(rows_of(task, validation), outputs.fold)
    if logits is None:  # a custom class sets something that it cannot leave out
        return network
    crossed = outputs._replace(logits=logits.astype(outputs.logits.dtype, copy=False))
    return replace(network, splits={**network.splits, "validation": outputs, THRESHOLD: crossed})


def basis_of(network: Scores, config: TrainConfig, *, weighs_heads: bool) -> str:
    """Return the kind of the rows that set thresholds (see `Guarantee`)."""
    rows = network.splits.get(THRESHOLD)
    if rows is None:
        return CHOSEN if weighs_heads or reason_to_hold_out(config) else HELD_OUT
    return CROSS_FITTED if weighs_heads and rows.fold is not None else HELD_OUT


def judge(run: Path, config: TrainConfig) -> None:
    """Judge the scores by the targets of the config → metrics.json, predictions, suspects and threshold.parquet.

    The last one is written if rows force the threshold of a recall.
    """
    models = read_run_scores(run / FOLDER)
    result = judge_scores(models, read_facts(run, config.model_dump()), config.decision)
    result = with_own_metrics(result, models[-1], config.metrics)
    write_json(run / METRICS, result.to_dict())
    remove_outputs(run, [FORCING])
    if result.forcing:
        _write_table(run / FORCING, pa.Table.from_pylist([row.to_dict() for row in result.forcing]))
    network = models[-1]
    with progress.stage("writing the predictions"):
        outputs, labels = unseen_rows(result), typed_labels(network.classes, network.label_type)
        strange = {split: _strange_values(run, config, split) for split in outputs}
        write_predictions(run / PREDICTIONS, outputs, result.decision, network.classes, labels, strange)
        _write_table(run / SUSPECTS, suspects_of(outputs, result.decision, labels))


def _write_table(path: Path, table: pa.Table) -> None:
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        pq.write_table(table, unfinished)


def with_own_metrics(result: RunResult, network: Scores, blocks: Sequence[Mapping[str, Any]]) -> RunResult:
    """Return a result with metrics of one's own in each split: of the probabilities of the network, uncalibrated."""
    if not blocks:
        return result
    positive = None if network.positive is None else network.classes.index(network.positive)
    own, splits = OwnMetrics(blocks, len(network.classes), positive), {}
    for name, metrics in result.splits.items():
        logits, labels = (torch.from_numpy(np.array(part)) for part in result.rows[name][:2])
        splits[name] = replace(metrics, own=own.values(logits.float().softmax(dim=-1), labels.long()))
    return replace(result, splits=splits)


def _strange_values(run: Path, config: TrainConfig, split: str) -> Mapping[str, np.ndarray]:
    """Return the measures of the rows of a split, one fold after the other (see `StrangeMeasures`)."""
    of_folds = [run / f"{FOLD}{fold}" for fold in range(config.data.split.folds)]
    folders = of_folds if config.data.split.fold == ALL_FOLDS else [run]
    datasets = [open_data(folder, config if folder == run else read_config(folder)) for folder in folders]
    measured = [StrangeMeasures(data.encoders).measure(data.all_splits[split].sequences).columns for data in datasets]
    return {name: np.concatenate([columns[name] for columns in measured]) for name in measured[0]}


def export(run: Path, config: TrainConfig) -> None:
    """Export the model with its decision, and compare the result with PyTorch → bundle/."""
    is_of_folds = config.data.split.fold == ALL_FOLDS
    recipe, reference = recipe_of(run, config), None
    if not is_of_folds:  # no row is left to remember
        result = read_judged(run, config.decision)
        reference = reference_data(open_data(run, config), result.rows["validation"].logits, result.decision)
    task = load_task(run / MODEL, trust=trusted(config.model_dump()))
    parity = write_bundle(task, run / "bundle", read_result(run), recipe, reference).max_error
    about = f"differs from PyTorch by at most {parity:.1e}"
    about += "; it is of all rows, and the scores are those of the folds" if is_of_folds else ""
    console.print(f"bundle: {shown_path(run / 'bundle')}, {about}", soft_wrap=True)


def recipe_of(run: Path, config: TrainConfig) -> JsonObject:
    """Return the settings that train such a model on other data. Those of folds are settings of the first fold."""
    if config.data.split.fold != ALL_FOLDS:
        return user_recipe(config)
    first = read_config(run / f"{FOLD}0")
    return first.model_copy(update={"decision": first.decision.model_copy(update={"holdout": AUTO})}).recipe()


def reference_data(dataset: Dataset, logits: np.ndarray, decision: Decision) -> ReferenceData:
    """Return the reference data, validation rows, whose `logits` are (N, C)."""
    whole = dataset.splits["validation"]
    some = sampled_rows(whole.sequences, REFERENCE_TOKENS, 0)
    rows, training = subset(whole, some), sample_split(dataset.splits["train"], REFERENCE_TOKENS, 0)
    reference = ReferenceData(dataset.encoders, dataset.classes, dataset.positive)
    known = PredictedRows(
        rows.sequences, rows.lengths_before_truncation, decision.probabilities(logits[some]), rows.groups
    )
    reference.fit(known, training.sequences)
    return reference


def report(run: Path, config: TrainConfig) -> None:
    """Describe the run for people → report.html."""
    with warned(run):
        dataset = None if config.data.split.fold == ALL_FOLDS else open_data(run, config)
        result, facts = read_judged(run, config.decision), read_facts(run, config.model_dump())
        write_run_page(run / "report.html", run, dataset, result, facts)


@contextmanager
def warned(run: Path) -> Iterator[None]:
    """Convert an exception in the block into a warning, because a report must not lose a trained model."""
    try:
        yield
    except Exception as error:
        warnings.warn(f"report.html: {error!r}; seqclf evaluate run={run} output=FOLDER writes it anew", stacklevel=3)
