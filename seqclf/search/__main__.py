"""`python -m seqclf.search`: hyperparameter search that runs one training command per trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.search.space import SearchConfig
    from seqclf.search.trials import SearchResult


@command("search", "seqclf.search.space.SearchConfig")
def main(config: SearchConfig) -> SearchResult:
    """Run a search: run trials, print the result of each trial, and write the settings of the best trial."""
    from seqclf.config.hydra_command import run_folder
    from seqclf.system.run_folder import locked

    with locked(run_folder()):
        return _search(config)


def _search(config: SearchConfig) -> SearchResult:
    from glob import escape

    from seqclf.config.hydra_command import config_folders, run_folder, typed_overrides
    from seqclf.config.override_text import shell_word
    from seqclf.documents.terminal import console
    from seqclf.evaluation.decisions.holdout import resolve_holdout
    from seqclf.report.run_comparison import show_runs
    from seqclf.search.space import SETTINGS, known_keys
    from seqclf.search.trials import BEST, DATABASE, SearchResult, open_study, run_trials, write_best
    from seqclf.training.checks.check_targets import resolve_targets

    options, folder = config.search, run_folder()
    # Check the settings before the first trial, because a trial reports errors later.
    space = options.space or known_keys(options.usual, resolve_targets(config).model_dump())
    # Each trial gets the overrides that the user typed, except the overrides of the search.
    typed = [text for text in typed_overrides() if not text.lstrip("+").startswith(("search.", "hydra."))]
    overrides = [*config_folders(), *typed]
    study = open_study(folder, options, overrides)
    if getattr(config.logger, "group", "") is None:
        overrides.append(f"logger.group={folder.name}")
    if (before := len(study.trials)) > 0:
        console.print(f"goes on after {before} trials in {folder / DATABASE}", soft_wrap=True)
    for line in run_trials(study, options, space, overrides, folder):
        console.print(line, soft_wrap=True)
    best = study.best_trial
    settings = best.user_attrs[SETTINGS]
    # All trials hold out the same rows of validation, and so must the training of the best settings.
    held_out = {"decision.holdout": resolve_holdout(config.decision, "a search").holdout}
    write_best({**settings, **held_out}, f"Trial {best.number}: {options.metric} {best.value:.6g}", folder / BEST)
    split = options.metric.partition(".")[0]
    trials, chosen = f"{escape(str(folder))}/trial-*", f"{folder}/trial-{best.number}"
    show_runs(trials, chosen, "validation" if split == "calibration" else split)
    trained = shell_word(f"--config-dir={folder}")
    console.print(f"best: {folder / BEST}; train it by seqclf train … {trained} experiment=best", soft_wrap=True)
    return SearchResult(str(folder), len(study.trials), options.metric, best.value, settings)


if __name__ == "__main__":
    main()
