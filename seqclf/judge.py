"""`python -m seqclf.judge`: judge the scores of a finished run, or of any other model, without a model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.config.command import command
from seqclf.errors import InputError, first_line

if TYPE_CHECKING:
    from seqclf.command_options import JudgeConfig
    from seqclf.evaluation.decisions.decision import Decision
    from seqclf.evaluation.options import DecisionOptions
    from seqclf.evaluation.scores import Scores
    from seqclf.report.run_files import RunFiles
    from seqclf.system.json_result import JsonObject

NO_BASELINE = "no order-blind model has scored these rows"


@command("judge", "seqclf.command_options.JudgeConfig")
def main(config: JudgeConfig) -> JsonObject:
    """Judge scores, print the verdict, and return the main figures."""
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.documents.blocks import Section
    from seqclf.documents.terminal import show_section
    from seqclf.evaluation.judge import judge
    from seqclf.evaluation.metrics import MAIN_METRICS
    from seqclf.report.ladder import ladder_table
    from seqclf.report.run_files import read_run
    from seqclf.report.score_table import show_verdict
    from seqclf.system.atomic_files import write_output

    if config.run and (config.scores or config.against):
        raise InputError(f"run={config.run}", "is beside scores or against", "judge a run, or a file of scores")
    if config.output:
        check_output_path(Path(config.output))
    contenders, facts, settings = read_run(Path(config.run)) if config.run else _of_files(config)
    if (ignored := config.decision.pop("ignore", None)) is not None:
        contenders = _without_rows(Path(str(ignored)), contenders, settings)
    _check_split(config, contenders[-1])
    contenders = [_changed(scores, config) for scores in contenders]
    if config.split is not None:
        facts = replace(facts, training=None)  # the next step is about the split of the run
    result = judge(contenders, facts, _decision(config, settings.get("decision", {}), contenders)).result
    show_verdict(result)
    if config.against:
        show_section(Section("Compared", [ladder_table(result.ladder)]))
    if config.output:
        forcing = {"forcing": [row.to_dict() for row in result.forcing]} if result.forcing else {}
        content = {**result.to_dict(), **forcing}
        write_output(Path(config.output), json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    figures = {name: round(getattr(result.metrics, name), 6) for name in MAIN_METRICS}
    threshold = result.decision.to_dict()
    return {"split": result.split, "use": not result.not_yet, **figures, "decision": threshold}


def _of_files(config: JudgeConfig) -> RunFiles:
    from seqclf.evaluation.judge import Facts
    from seqclf.evaluation.scores import HEAD, NETWORK, read_scores
    from seqclf.report.run_files import RunFiles

    if not config.scores:
        raise InputError("run", "not set", "name a run, run=RUN, or a file of scores, scores=FILE")
    against = None if config.against is None else read_scores(Path(config.against))
    scores = replace(read_scores(Path(config.scores), against), role=NETWORK, name=str(config.scores))
    compared = [] if against is None else [replace(against, role=HEAD, name=str(config.against))]
    return RunFiles([*compared, scores], Facts(no_baseline=NO_BASELINE), {})


def _without_rows(path: Path, contenders: list[Scores], settings: dict[str, Any]) -> list[Scores]:
    """Return scores without the rows that set thresholds and whose ids are the lines of a file."""
    import numpy as np

    from seqclf.documents.terminal import show_note
    from seqclf.evaluation.decisions.decision import BY_HAND
    from seqclf.evaluation.judge import threshold_split
    from seqclf.evaluation.scores import taken

    data, where, split = settings.get("data", {}), f"decision.ignore={path}", threshold_split(contenders[-1])
    remedy = "give a text file of ids, one a line"
    if settings and not (data.get("id") or data.get("group_by")):
        raise InputError(where, "the rows of the run have no ids of their own", "train with data.id=COLUMN")
    if split not in contenders[-1].splits:
        raise InputError(where, "there are no rows to set a threshold", "score the split validation too")
    try:
        named = {line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()}
    except (OSError, ValueError) as error:
        raise InputError(where, f"cannot be read ({first_line(error)})", remedy) from None
    if not named:
        raise InputError(where, "names no row", remedy)
    found = Counter[str](np.asarray(contenders[-1].splits[split].ids).tolist())
    for name in sorted(named):
        if not found[name]:
            problem = f"no row that sets the threshold (split {split}) has the id '{name}'"
            raise InputError(where, problem, "name ids of threshold.parquet")
        if found[name] > 1:
            raise InputError(where, f"{found[name]:,} rows of {split} have the id '{name}'", "make the ids unique")
    kept = []
    for scores in contenders:
        if (rows := scores.splits.get(split)) is not None:
            places = np.flatnonzero(~np.isin(np.asarray(rows.ids).astype(str), [*named]))
            if not len(places):
                raise InputError(where, f"leaves no row of {split} out of {len(rows.labels):,}", "name fewer ids")
            scores = replace(scores, splits={**scores.splits, split: taken(rows, places)})
        kept.append(replace(scores, basis=BY_HAND))
    count = "1 row" if len(named) == 1 else f"{len(named):,} rows"
    show_note(f"{count} left out by hand (split {split}): no statement holds")
    return kept


def _changed(scores: Scores, config: JudgeConfig) -> Scores:
    from seqclf.data.storage.dataset import THRESHOLD, check_positive

    if config.positive is not None:
        check_positive(config.positive, scores.classes)
        scores = replace(scores, positive=config.positive)
    if config.split is None or config.split not in scores.splits:
        return scores
    order = [split for split in scores.splits if split not in (config.split, THRESHOLD)]
    kept = [split for split in scores.splits if split == THRESHOLD]
    return replace(scores, splits={split: scores.splits[split] for split in (*kept, *order, config.split)})


def _check_split(config: JudgeConfig, network: Scores) -> None:
    """Raise InputError for a split without scores, and for one whose rows made the model or its threshold."""
    from seqclf.data.storage.dataset import THRESHOLD

    judging = [split for split in network.splits if split not in ("train", THRESHOLD)]
    if not judging:
        raise InputError("scores", "hold no rows to judge by", "score the split validation or test")
    if config.split is not None and config.split not in judging:
        raise InputError(f"split={config.split}", "does not judge this model", f"the splits are {', '.join(judging)}")


def _decision(config: JudgeConfig, settings: dict[str, Any], contenders: list[Scores]) -> DecisionOptions | Decision:
    """Return the decision of `threshold`, or the target of the config in place of that of the run."""
    from seqclf.config.options import parse_options
    from seqclf.evaluation.decisions.decision import RULES, override_threshold
    from seqclf.evaluation.judge import decide
    from seqclf.evaluation.options import DecisionOptions

    own = dict.fromkeys(RULES) | {"confidence": None, "holdout": "auto", "provisional": False, "calibrate": False}
    given = {key: value for key, value in config.decision.items() if value is not None}
    if any(rule in given for rule in RULES):  # replaces the target of the run, with its confidence
        settings = {key: value for key, value in settings.items() if key not in (*RULES, "confidence")}
    options, network = parse_options(DecisionOptions, {**own, **settings, **given}, "decision"), contenders[-1]
    if config.threshold is None:
        return options
    if rules := [rule for rule in RULES if rule in given]:
        raise InputError(f"threshold={config.threshold}", f"is beside decision.{rules[0]}", "set one of the two")
    # The threshold is one of probabilities, which the temperature of the run changes.
    return override_threshold(decide(contenders, options), config.threshold, network.positive, network.classes)


if __name__ == "__main__":
    main()
