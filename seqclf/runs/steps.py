"""The steps of a run after its training: score, judge, export and report. Each reads the files of the ones before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.data.encoding.row_checks import StrangeMeasures
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import sample_split, sampled_rows, subset
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.judge import judge as judge_scores
from seqclf.evaluation.score_files import FOLDER, read_run_scores, write_run_scores
from seqclf.report.document import write_run_page
from seqclf.report.run_files import no_baseline, read_facts, read_judged, read_result
from seqclf.runs.export import write_bundle
from seqclf.runs.predictions import write_predictions
from seqclf.runs.prepare import open_data, read_config, write_json
from seqclf.runs.score import score_models
from seqclf.runs.threshold_rows import all_rows_set_thresholds, asked_recipe, basis_of, cross_fitted
from seqclf.runs.trainer import device_of
from seqclf.runs.training import trusted
from seqclf.settings.data import ALL_FOLDS
from seqclf.settings.decision import AUTO
from seqclf.settings.training import TrainConfig
from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import FIT, FOLD, FORCING, METRICS, MODEL, PREDICTIONS, remove_outputs
from seqclf.system.state_validation import read_json
from seqclf.training.task import SequenceTask, load_task

REFERENCE_TOKENS = 2_000_000  # tokens that the reference data of a bundle are computed from


def score(run: Path, config: TrainConfig) -> None:
    """Apply the model, and those beside it, to all rows → scores/."""
    dataset, task = open_data(run, config), load_model(run, config)
    batches = SequenceDataModule(dataset.all_splits, config.batching, seed=config.seed)
    is_compared = no_baseline(config.model_dump(), dataset.report) is None
    models = score_models(task, batches, dataset, baseline=is_compared)
    weighs = read_json(run / FIT)["by_validation"] is not None
    if all_rows_set_thresholds(config):
        models[-1] = cross_fitted(models[-1], task, dataset.splits["validation"], weighs_heads=weighs)
    models[-1] = replace(models[-1], basis=basis_of(models[-1], config, weighs_heads=weighs))
    write_run_scores(run / FOLDER, models)


def load_model(run: Path, config: TrainConfig) -> SequenceTask:
    """Return the finished model of a run, on the device of its trainings."""
    return load_task(run / MODEL, trust=trusted(config)).to(device_of(config.trainer))


def judge(run: Path, config: TrainConfig) -> None:
    """Judge the scores by the targets of the config → metrics.json, predictions.parquet, and threshold.parquet.

    The last one is written if rows force the threshold of a recall.
    """
    models = read_run_scores(run / FOLDER)
    result = judge_scores(models, read_facts(run, config.model_dump()), config.decision)
    write_json(run / METRICS, result.to_dict())
    remove_outputs(run, [FORCING])
    if result.forcing:
        with explain_disk_errors(run / FORCING), atomic_replace(run / FORCING) as unfinished:
            pq.write_table(pa.Table.from_pylist([row.to_dict() for row in result.forcing]), unfinished)
    network = models[-1]
    with progress.stage("writing the predictions"):
        kept = (result.split,) if config.data.split.fold == ALL_FOLDS else result.rows.keys() - {"train"}
        outputs = {split: rows for split, rows in result.rows.items() if split in kept}
        labels = typed_labels(network.classes, network.label_type)
        strange = {split: _strange_values(run, config, split) for split in outputs}
        write_predictions(run / PREDICTIONS, outputs, result.decision, network.classes, labels, strange)


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
    task = load_task(run / MODEL, trust=trusted(config))
    parity = write_bundle(task, run / "bundle", read_result(run), recipe, reference).max_error
    about = f"differs from PyTorch by at most {parity:.1e}"
    about += "; it is of all rows, and the scores are those of the folds" if is_of_folds else ""
    console.print(f"bundle: {shown_path(run / 'bundle')}, {about}", soft_wrap=True)


def recipe_of(run: Path, config: TrainConfig) -> JsonObject:
    """Return the settings that train such a model on other data. Those of folds are settings of the first fold."""
    if config.data.split.fold != ALL_FOLDS:
        return asked_recipe(config)
    first = read_config(run / f"{FOLD}0")
    asked = first.decision.model_copy(update={"holdout": AUTO})
    return first.model_copy(update={"decision": asked}).recipe()


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
