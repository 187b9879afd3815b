"""A complete training run, from a validated config to a run folder, for the train command and for `seqclf.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.data.prepare import prepare
from seqclf.data.splitting.options import ALL_FOLDS
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console, show_note, show_warnings
from seqclf.errors import InputError
from seqclf.runs.overview import show_dataset
from seqclf.runs.processes.ranks import ending_with_parent, join_ranks, only_rank_zero_prints, shared_run_folder
from seqclf.survey.outlook import show_outlook
from seqclf.survey.survey import survey_dataset
from seqclf.system import progress, signals
from seqclf.system.run_folder import FOLD, RESULTS, claim_run_folder, is_first_rank
from seqclf.training.options import AUTO

if TYPE_CHECKING:
    from seqclf.data.encoding.encoder import FieldEncoder
    from seqclf.runs.train import FastDevRunResult, TrainResult
    from seqclf.training.options import TrainConfig

    TrainingResult = TrainResult | FastDevRunResult | None


def run_training(config: TrainConfig, run: Path, *, prints_verdict: bool = True) -> TrainingResult:
    """Prepare the data, train a model, evaluate the model, and export it into the folder `run`.

    `prints_verdict`: True to print the scores and their interpretation. Returns `None` on ranks other than 0. Raises
    InputError if the folder holds another run, or if the data or settings cannot be used.
    """
    config, run = join_ranks(config), shared_run_folder(run)
    with ending_with_parent(), only_rank_zero_prints():
        if config.data.split.fold == ALL_FOLDS:
            return _train_folds(config, run)
        return _train_claimed(config, run, prints_verdict)


def _train_folds(config: TrainConfig, run: Path) -> TrainResult:
    key = f"data.split.fold={ALL_FOLDS}"
    if config.trainer["fast_dev_run"]:
        raise InputError(key, "trains to the end, which trainer.fast_dev_run does not", "name one fold")
    if config.trainer.get("devices", "auto") not in ("auto", 1) or config.trainer.get("num_nodes", 1) != 1:
        raise InputError(key, "trains in one process", "set trainer.devices=1")
    if config.decision.holdout not in (AUTO, 0):
        raise InputError("decision.holdout", "has no use where the rows of all folds set the threshold", "leave it out")
    if config.checkpoint not in (None, AUTO):
        raise InputError(f"checkpoint={config.checkpoint}", "is that of one fold", "set checkpoint=auto to go on")
    with progress.stage("loading Lightning"):
        from seqclf.runs.folds import run_folds
        from seqclf.runs.processes.process_settings import process_settings
        from seqclf.runs.threshold_rows import with_holdout
        from seqclf.training.checks.check_targets import resolve_targets

    config = with_holdout(resolve_targets(config.model_copy(update={"trainer": {**config.trainer, "devices": 1}})))
    goes_on = config.checkpoint == AUTO and (run / f"{FOLD}0").is_dir()
    with claim_run_folder(run, None, config.overwrite or goes_on), process_settings(config.runtime, config.seed):
        try:
            return run_folds(config, run, lambda one, folder: _train_claimed(one, folder, False))
        except signals.Terminated as end:
            end.advice = f"resume with checkpoint={AUTO}"
            raise


def _train_claimed(config: TrainConfig, run: Path, prints_verdict: bool) -> TrainingResult:
    found, replaces = _find_checkpoint(config, run)
    with claim_run_folder(run, found.checkpoint, replaces):
        return _train(found, run, prints_verdict)


def _find_checkpoint(config: TrainConfig, run: Path) -> tuple[TrainConfig, bool]:
    """Return the config with the checkpoint to resume from, and True if the run may replace its folder.

    Without a checkpoint for `checkpoint=auto`, it may, unless the folder has complete results.
    """
    if config.checkpoint != AUTO:
        return config, config.overwrite
    with progress.stage("loading PyTorch"):
        from seqclf.training.resume import newest_checkpoint
    checkpoint = newest_checkpoint(run / "checkpoints")
    if checkpoint is None:
        show_note(f"checkpoint=auto: no checkpoint in {run}, so the training starts from the beginning")
        unfinished = not any((run / name).exists() for name in RESULTS)
        return config.model_copy(update={"checkpoint": None}), config.overwrite or unfinished
    console.print(f"checkpoint=auto: resumes {checkpoint}", soft_wrap=True)
    return config.model_copy(update={"checkpoint": str(checkpoint)}), config.overwrite


def _train(config: TrainConfig, run: Path, prints_verdict: bool) -> TrainingResult:
    # Check the arguments first, because preparing the data may take hours.
    with progress.stage("loading PyTorch"):
        from seqclf.runs.threshold_rows import reason_to_hold_out, with_holdout
        from seqclf.training.checks.check_targets import resolve_targets

        config = with_holdout(asked := resolve_targets(config))

    dataset = prepare(config.data, partial(check_tree_fields, config.model))
    show_dataset(dataset)
    data_warnings = []
    if is_first_rank():  # only the first rank reports warnings
        data_warnings = survey_dataset(dataset, config.data, baseline=False).warnings
        show_warnings(data_warnings)
        if prints_verdict:
            show_outlook(dataset, asked.decision, asked.model_dump(), reason_to_hold_out(asked))
    with progress.stage("loading Lightning"):  # Lightning is imported only after the data has passed all checks
        from seqclf.runs.processes.process_settings import process_settings
        from seqclf.runs.train import train

    with process_settings(config.runtime, config.seed):
        result = train(config, dataset, run, data_warnings, prints_verdict=prints_verdict)
    if result is not None:
        console.print(f"run: {shown_path(run)}", soft_wrap=True)
    return result


def check_tree_fields(model: Mapping[str, Any], encoders: Mapping[str, FieldEncoder | type[FieldEncoder]]) -> None:
    """Raise InputError if a model reads trees, but the data has no field of kind tree."""
    from seqclf.models.encoder import reads_trees

    if reads_trees(model) and not any(encoder.tags is not None for encoder in encoders.values()):
        raise InputError(
            f"model.encoder._target_={model['encoder']['_target_']}",
            f"reads trees, and the data has none (fields: {', '.join(encoders)})",
            "set 'data.fields={COLUMN: tree}', or choose another model, such as model=lstm",
        )
