"""Cross-validation in one run (data.split.fold=all): a model of each fold, judged together, and a model of all rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.declaration import declared_fields
from seqclf.data.prepare_data import prepare
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.decision import FOLDS, RULES
from seqclf.evaluation.score_files import FOLDER, read_run_scores, write_run_scores
from seqclf.evaluation.scores import ScoredRows, Scores
from seqclf.report.description import show
from seqclf.report.reported import Reported
from seqclf.report.verdict import CROSS_VALIDATED
from seqclf.runs.all_rows import check_repeatable, train_on_all_rows
from seqclf.runs.overview import show_guess
from seqclf.runs.pipeline import run_steps
from seqclf.runs.prepare import read_config, with_holdout, write_config, write_json
from seqclf.runs.process_settings import process_settings
from seqclf.runs.run_files import read_result
from seqclf.runs.steps import export, judge, report
from seqclf.runs.training_run import Training
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.settings.decision_settings import AUTO
from seqclf.settings.train_settings import TrainConfig
from seqclf.survey.outlook import show_outlook
from seqclf.system import signals
from seqclf.system.run_folder import CURVES, DATA, FIT, FOLD, claim_run_folder, remove_outputs, run_outputs
from seqclf.system.state_validation import read_json
from seqclf.training.check_targets import resolve_targets

TEST = "test"
ESTIMATE = f"each fold is judged at the threshold that the other folds set: {CROSS_VALIDATED}"
FOLD_STRIDE = 2**32  # positions of the rows of a fold start at its number times this


def run_folds(config: TrainConfig, run: Path, train_fold: Callable[[TrainConfig, Path], object]) -> None:
    """Train a model of each fold in RUN/fold-N, and judge their scores of the rows that each left out, as those of one.

    The rows of the other folds set the threshold at which a fold is judged. Then a model of all rows becomes the
    bundle, which no row is left to judge: the training of the first fold, repeated with the rows of validation and test
    (see `train_on_all_rows`), with the vocabularies and scales of this fold. `train_fold`: trains and scores the model
    of a fold, and leaves the files of a run. A run that was killed goes on with the folds that are not finished. Raises
    InputError before the first training if a fold lacks a class, or if there can be no model of all rows.
    """
    _check(config)
    config = with_holdout(resolve_targets(config.model_copy(update={"trainer": {**config.trainer, "devices": 1}})))
    goes_on = config.checkpoint == AUTO and (run / f"{FOLD}0").is_dir()
    with claim_run_folder(run, None, config.overwrite or goes_on), process_settings(config.runtime, config.seed):
        try:
            _run_folds(config, run, train_fold)
        except signals.Terminated as end:
            end.advice = f"resume with checkpoint={AUTO}"
            raise


def _check(config: TrainConfig) -> None:
    key = f"data.split.fold={ALL_FOLDS}"
    if config.trainer["fast_dev_run"]:
        raise InputError(key, "trains to the end, which trainer.fast_dev_run does not", "name one fold")
    if config.trainer.get("devices", "auto") not in ("auto", 1) or config.trainer.get("num_nodes", 1) != 1:
        raise InputError(key, "trains in one process", "set trainer.devices=1")
    if config.decision.holdout not in (AUTO, 0):
        raise InputError("decision.holdout", "has no use where the rows of all folds set the threshold", "leave it out")
    if config.checkpoint not in (None, AUTO):
        raise InputError(f"checkpoint={config.checkpoint}", "is that of one fold", "set checkpoint=auto to go on")


def _run_folds(config: TrainConfig, run: Path, train_fold: Callable[[TrainConfig, Path], object]) -> None:
    # What the first fold inferred holds for all: the rows of another might tell of other fields or a rarer label.
    first = prepare(_of_fold(config, 0).data)
    others = range(1, config.data.split.folds)
    fields = declared_fields(first.schema)
    prepared = [first, *(prepare(_of_fold(config, fold, **fields).data) for fold in others)]
    _check_classes(prepared)
    show_guess(first)
    configs = [_of_fold(config, 0, positive=first.positive)]
    configs += [_of_fold(config, fold, positive=first.positive, **fields) for fold in others]
    folders = [run / f"{FOLD}{fold}" for fold in range(len(configs))]
    show_outlook(first, config.decision, config.model_dump(), None)
    if config.export:
        check_repeatable(_first_training(configs[0], first, folders[0]))
    goes_on = config.checkpoint == AUTO
    remove_outputs(run, [name for name in run_outputs(run) if not (goes_on and name.startswith(FOLD))])
    write_config(run, config)
    threads: dict[str, Any] = {}  # the first fold decides for all how many they are
    for fold, (of_fold, folder) in enumerate(zip(configs, folders, strict=True)):
        console.rule(f"fold {fold + 1} of {len(configs)}")
        train_fold(of_fold.model_copy(update=threads), folder)
        threads = {"runtime": read_config(folders[0]).runtime}
    console.rule(f"{len(configs)} folds together")
    _join(config, run, folders, prepared)
    run_steps(run, config, [judge])
    show(Reported(result=read_result(run)))
    if config.export:
        train_on_all_rows(_first_training(configs[0].model_copy(update=threads), first, folders[0]), run)
    remove_outputs(run, () if config.export else ("bundle",))
    run_steps(run, config, [*([export] if config.export else []), report])


def _join(config: TrainConfig, run: Path, folders: Sequence[Path], datasets: Sequence[Dataset]) -> None:
    """Write the scores and facts of all folds as those of one run: the facts of the first fold, where they differ."""
    write_run_scores(run / FOLDER, _joined([read_run_scores(folder / FOLDER) for folder in folders], datasets))
    data, fitted = ([read_json(folder / name) for folder in folders] for name in (DATA, FIT))
    lines = dict.fromkeys(line for facts in data for line in facts["warnings"])
    note = f"the scores are those of {len(folders)} models on the rows that each left out"
    scale = "; loss and calibration are of logits that were multiplied to the scale of the first model"
    rows = sum(len(split.labels) for split in datasets[0].splits.values())
    bundle = f"; the bundle is trained on all {rows:,} rows, and no row judges it" if config.export else ""
    has_threshold = any(getattr(config.decision, rule) is not None for rule in RULES)
    warnings = [*lines, note + bundle + scale, *([ESTIMATE] if has_threshold else [])]
    write_json(run / DATA, {**data[0], "warnings": warnings})
    seconds = round(sum(facts["seconds"] for facts in fitted), 2)
    chosen = next((facts["by_validation"] for facts in fitted if facts["by_validation"]), None)
    write_json(run / FIT, {**fitted[0], "seconds": seconds, "by_validation": chosen})
    shutil.copy(folders[0] / CURVES, run)


def _check_classes(datasets: Sequence[Dataset]) -> None:
    for fold, dataset in enumerate(datasets):
        if lacking := {*datasets[0].classes} ^ {*dataset.classes}:
            problem = f"the training rows of a fold lack the class '{min(lacking)}' (fold 0 or {fold})"
            raise InputError(f"data.split.folds={len(datasets)}", problem, "set fewer folds, or leave out the class")


def _first_training(config: TrainConfig, dataset: Dataset, folder: Path) -> Training:
    return Training.build(config.model_copy(update={"checkpoint": None}), dataset, folder)


def _of_fold(config: TrainConfig, fold: int, **decided: Any) -> TrainConfig:
    """Return the config of a fold. `decided`: data options that the first fold decides for all."""
    split = config.data.split.model_copy(update={"fold": fold})
    data = config.data.model_copy(update={"split": split, **decided})
    decision = config.decision.model_copy(update={"holdout": 0.0})
    # No validation would stop the heads of the model of all rows, which has the weights of the heads of a fold.
    own = {"decision": decision, "export": False, "head_patience": None}
    return config.model_copy(update={"data": data, **own})


def _joined(folds: Sequence[Sequence[Scores]], datasets: Sequence[Dataset]) -> list[Scores]:
    """Return the scores of the models that all folds have, with the rows of all folds in each split."""
    kept = {split: _first_of_each_row(datasets, split) for split in datasets[0].all_splits}
    networks = _on_one_scale([fold[-1] for fold in folds])
    of_folds = [(*fold[:-1], network) for fold, network in zip(folds, networks, strict=True)]
    by_fold = [{(scores.role, scores.name, scores.model): scores for scores in fold} for fold in of_folds]
    return [
        replace(
            scores,
            basis=FOLDS,
            splits={
                split: _concatenated([fold[key].splits[split] for fold in by_fold], kept[split], of_test=split == TEST)
                for split in scores.splits
                if split in kept
            },
        )
        for key, scores in by_fold[0].items()
        if all(key in fold for fold in by_fold)
    ]


def _on_one_scale(networks: Sequence[Scores]) -> list[Scores]:
    """Scale the logits of each fold to those of the first fold, whose weights of the heads the bundle has.

    With few rows these weights stretch the logits of each fold by another factor: 1.8 between the largest and the
    smallest of five, with 60 positive rows. One threshold then found half of the positive rows of one fold and all of
    another.
    """
    logits = [scores.splits[TEST].logits for scores in networks]
    sizes = [float(np.abs(values - values.mean(axis=1, keepdims=True)).mean()) for values in logits]
    scaled = []
    for scores, size in zip(networks, sizes, strict=True):
        factor = np.float32(sizes[0] / size if size > 0 else 1.0)
        parts = {split: outputs._replace(logits=outputs.logits * factor) for split, outputs in scores.splits.items()}
        scaled.append(replace(scores, splits=parts))
    return scaled


def _first_of_each_row(datasets: Sequence[Dataset], split: str) -> list[np.ndarray]:
    """Return the positions of the rows of a split in each fold that no earlier fold has in this split.

    A row may be in validation of several folds, and would count several times; it is in test once, and all of test is
    kept, as rows of several files may share id and number.
    """
    if split == TEST:
        return [np.arange(len(dataset.splits[TEST].labels)) for dataset in datasets]
    seen: set[tuple[str, int]] = set()
    kept = []
    for dataset in datasets:
        rows = dataset.all_splits[split]
        keys = list(zip(rows.ids.to_pylist(), rows.row_numbers.tolist(), strict=True))
        kept.append(np.array([at for at, key in enumerate(keys) if key not in seen], np.int64))
        seen.update(keys)
    return kept


def _concatenated(parts: Sequence[ScoredRows], kept: Sequence[np.ndarray], *, of_test: bool) -> ScoredRows:
    """Return the kept rows of the parts, one part after the other. Rows of test get the number of their fold."""
    chosen = []
    for fold, (outputs, rows) in enumerate(zip(parts, kept, strict=True)):
        assert outputs.positions is not None, "scores of a run"
        some = np.flatnonzero(np.isin(outputs.positions, rows))
        chosen.append(outputs.take(some)._replace(positions=outputs.positions[some] + fold * FOLD_STRIDE))
    folds = np.repeat(np.arange(len(chosen)), [len(outputs.labels) for outputs in chosen])
    columns: dict[str, Any] = {}
    for name in ScoredRows._fields:
        values = [getattr(outputs, name) for outputs in chosen]
        if name == "extra":
            columns[name] = {key: np.concatenate([part[key] for part in values]) for key in values[0]}
        elif values[0] is not None:
            columns[name] = pa.concat_arrays(values) if isinstance(values[0], pa.Array) else np.concatenate(values)
    return ScoredRows(**columns)._replace(fold=folds if of_test else None)
