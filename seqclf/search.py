"""`python -m seqclf.search`: settings for a training command, tried one after the other."""

from __future__ import annotations

from typing import Any

from seqclf.config.command import command, given_overrides, run_folder


@command("search")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Try, tell, write the best."""
    from seqclf.config.checks import check_ranges
    from seqclf.system.run_lock import locked

    check_ranges(config)
    with locked(run_folder()):
        return _search(config)


def _search(config: dict[str, Any]) -> dict[str, Any]:
    import shlex

    from seqclf.reporting.console import console
    from seqclf.tuning.outcome import BEST, draw, ended, show, told, write_best
    from seqclf.tuning.space import as_overrides, check_space
    from seqclf.tuning.trials import DATABASE, open_study, run_trials

    settings, folder = config["search"], run_folder()
    space = settings["space"] or settings["usual"]
    check_space(space)
    # What was said of the training, for each trial again.
    overrides = [text for text in given_overrides() if not text.lstrip("+").startswith(("search.", "hydra."))]
    study = open_study(folder, settings, overrides)
    if config["logger"].get("group", "") is None:
        overrides.append(f"logger.group={folder.name}")
    if (before := len(study.trials)) > 0:
        console.print(f"goes on after {before} trials in {folder / DATABASE}", soft_wrap=True)
    run_trials(study, space, settings, overrides, folder, lambda trial: console.print(told(trial), soft_wrap=True))
    write_best(study, folder / BEST)
    draw(study, folder / "search.png")
    console.print(show(study))
    best = ended(study)[0]
    again = shlex.join(["python", "-m", "seqclf.train", *overrides, *as_overrides(best.params)])
    console.print(f"best: {folder / BEST}, or\n  {again}", soft_wrap=True)
    return {
        "search": str(folder),
        "trials": len(study.trials),
        "metric": settings["metric"],
        "value": best.value,
        "best": best.params,
    }


if __name__ == "__main__":
    main()
