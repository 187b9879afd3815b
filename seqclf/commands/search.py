"""Hyperparameter search that runs one training command per trial."""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape
from typing import Any

from seqclf.commands.trials import BEST, DATABASE, SETTINGS, as_overrides, open_study, run_trials, write_best
from seqclf.config.command_keys import flat_keys
from seqclf.config.hydra_config import config_folders, run_folder, typed_overrides
from seqclf.documents.terminal import console
from seqclf.evaluation.holdout import resolve_holdout
from seqclf.runs.run_comparison import show_runs
from seqclf.settings.command_settings import SearchConfig
from seqclf.settings.typed_text import shell_word
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import locked
from seqclf.training.check_targets import resolve_targets


@dataclass(frozen=True)
class SearchResult(JsonResult):
    """The JSON line of the command `search`: the folder, the number of trials, and the best trial."""

    search: str
    trials: int
    metric: str
    value: float
    best: dict[str, Any]  # settings: dotted key → value


def main(config: SearchConfig) -> SearchResult:
    """Run trials, print the result of each trial, and write the settings of the best trial."""
    options, folder = config.search, run_folder()
    # Check the settings before the first trial, because a trial reports errors later.
    known = flat_keys(resolve_targets(config).model_dump())
    # A network of another package may lack keys of the usual space.
    space = options.space or {key: values for key, values in options.usual.items() if key in known}
    # Each trial gets the overrides that the user typed, except the overrides of the search.
    typed = [text for text in typed_overrides() if not text.lstrip("+").startswith(("search.", "hydra."))]
    overrides = [*config_folders(), *typed]
    with locked(folder):
        study = open_study(folder, options, space, overrides)
        if getattr(config.logger, "group", "") is None:
            overrides += as_overrides({"logger.group": folder.name})
        if study.trials:
            console.print(f"goes on after {len(study.trials)} trials in {folder / DATABASE}", soft_wrap=True)
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
