"""`python -m seqclf.train`: labelled sequences → a trained model, its scores, and a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command, run_folder, sweep_name

if TYPE_CHECKING:
    from seqclf.pipeline import FastDevRunResult, TrainResult
    from seqclf.training.options import TrainConfig


@command("train", "seqclf.training.options.TrainConfig")
def main(config: TrainConfig) -> TrainResult | FastDevRunResult | None:
    """Prepare, train, score, export."""
    from seqclf.system.run_lock import claim_run_folder

    with claim_run_folder(run_folder(), config.checkpoint, config.overwrite):
        return _train(_with_group(config))


def _with_group(config: TrainConfig) -> TrainConfig:
    """Let the runs of a multirun share a group in the logger, unless one is set."""
    if getattr(config.logger, "group", "") is not None:  # loggers without groups have no such key
        return config
    return config.model_copy(update={"logger": config.logger.model_copy(update={"group": sweep_name()})})


def _train(config: TrainConfig) -> TrainResult | FastDevRunResult | None:
    from seqclf.config.written_keys import written_keys
    from seqclf.data.prepare import prepare
    from seqclf.reporting.console import console, show_dataset, show_warnings
    from seqclf.survey.survey import survey_dataset
    from seqclf.training.check_targets import resolve_targets

    # Loads PyTorch; a wrong argument must not come up after hours of preparation.
    config = resolve_targets(config, written_keys())
    dataset = prepare(config.data)
    show_dataset(dataset)
    survey = survey_dataset(dataset, config.data, config.batching.model_dump(), baseline=False)
    show_warnings(survey)
    from seqclf import pipeline  # loads Lightning, which only good data needs

    run = run_folder()
    result = pipeline.train(config, dataset, run, survey.warnings)
    if result is not None:
        console.print(f"run: {run}", soft_wrap=True)
    return result


if __name__ == "__main__":
    main()
