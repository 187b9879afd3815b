"""`python -m seqclf.train`: labelled sequences → a trained model, its scores, and a bundle."""

from __future__ import annotations

from typing import Any

from seqclf.config.command import command, run_folder, sweep_name


@command("train")
def main(config: dict[str, Any]) -> dict[str, Any] | None:
    """Prepare, train, score, export."""
    from seqclf.config.checks import check_ranges
    from seqclf.system.run_lock import claim_run_folder

    check_ranges(config)
    if config["logger"].get("group", "") is None:
        config["logger"]["group"] = sweep_name()
    with claim_run_folder(run_folder(), config["checkpoint"], config["overwrite"]):
        return _train(config)


def _train(config: dict[str, Any]) -> dict[str, Any] | None:
    from seqclf.data.prepare import DataOptions, prepare
    from seqclf.data.splitting.leakage import leak_lines
    from seqclf.reporting.console import console, show_dataset, warn
    from seqclf.survey.survey import survey_dataset

    options = DataOptions.build(**config["data"])
    dataset = prepare(options)
    show_dataset(dataset)
    survey = survey_dataset(dataset, options, config["batching"], baseline=False)
    for line in survey.warnings:
        if line not in leak_lines(dataset.leaks):
            warn(line)
    from seqclf import pipeline  # PyTorch is loaded only once the data is known to be good

    run = run_folder()
    result = pipeline.train(config, dataset, run, survey.warnings)
    if result is not None:
        console.print(f"run: {run}", soft_wrap=True)
    return result


if __name__ == "__main__":
    main()
