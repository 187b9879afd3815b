"""One training: a checked config becomes a run folder. The train command and `seqclf.fit` both call it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.data.prepare import prepare
from seqclf.documents.terminal import console, show_note, show_warnings
from seqclf.errors import InputError
from seqclf.runs.overview import show_dataset
from seqclf.runs.ranks import ending_with_parent, join_ranks, only_rank_zero_prints, shared_run_folder
from seqclf.runs.submitted_job import submitted_job
from seqclf.survey.survey import survey_dataset
from seqclf.system import progress
from seqclf.system.run_folder import RESULTS, claim_run_folder, is_first_rank
from seqclf.training.loggers.early_import import import_early
from seqclf.training.options import AUTO

if TYPE_CHECKING:
    from seqclf.runs.debug import OverfitResult, ShapesResult
    from seqclf.runs.fit import FastDevRunResult, TrainResult
    from seqclf.training.options import TrainConfig

    TrainingResult = TrainResult | FastDevRunResult | OverfitResult | ShapesResult | None


def run_training(
    config: TrainConfig, run: Path, written: Collection[str], *, prints_verdict: bool = True
) -> TrainingResult:
    """Prepare the data, train, evaluate and export into the folder `run`.

    `written`: keys of the config that the user wrote (see `user_keys`). `prints_verdict`: end with the scores and
    what they mean. Returns None on ranks other than 0. Raises
    InputError if the folder holds another run, and for data or settings that cannot be used.
    """
    with submitted_job():
        config, run = join_ranks(config, written), shared_run_folder(run)
        with ending_with_parent(), only_rank_zero_prints():
            found, replaces = _find_checkpoint(config, run)
            with claim_run_folder(run, found.checkpoint, replaces):
                return _train(found, run, written, prints_verdict)


def _find_checkpoint(config: TrainConfig, run: Path) -> tuple[TrainConfig, bool]:
    """Return the config with the file that `checkpoint=auto` stands for, and whether the run may replace its folder.

    A start that was killed before its first checkpoint is replaced. A run whose results are complete is not.
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


def _train(config: TrainConfig, run: Path, written: Collection[str], prints_verdict: bool) -> TrainingResult:
    # A wrong argument must not come up after hours of preparation.
    if config.debug.ends_early and config.checkpoint is not None:
        raise InputError(
            f"checkpoint={config.checkpoint}",
            f"debug={config.debug.name} starts from new weights",
            "remove one of the two",
        )
    with progress.stage("loading PyTorch"):
        if is_first_rank() and not config.debug.ends_early:
            import_early(config.logger.name)
        from seqclf.runs.tree_fields import check_tree_fields
        from seqclf.training.check_targets import resolve_targets

        config = resolve_targets(config, written)
    dataset = prepare(config.data, partial(check_tree_fields, config.model, dataset=config.data.name))
    show_dataset(dataset, config.data.fields)
    data_warnings = []
    if is_first_rank():  # which alone reports them
        data_warnings = survey_dataset(dataset, config.data, config.batching, baseline=False).warnings
        show_warnings(data_warnings)
    with progress.stage("loading Lightning"):  # which only good data needs
        from seqclf.runs import fit as pipeline
        from seqclf.runs.debug import debug_run
        from seqclf.runs.process_settings import process_settings

    result: TrainingResult
    with process_settings(config.runtime, config.seed):
        if config.debug.ends_early:
            result = debug_run(config, dataset, run)
        else:
            result = pipeline.train(config, dataset, run, data_warnings, prints_verdict=prints_verdict)
    if result is not None:
        console.print(f"run: {run}", soft_wrap=True)
    return result
