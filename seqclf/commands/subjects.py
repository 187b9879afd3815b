"""Subjects of the command `evaluate`: a bundle on labelled rows, a finished run, or scores of any tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from seqclf.bundle import manifest
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.scoring import LabelledPredictions, labelled_sources, predict_labelled
from seqclf.data.prepare_data import with_generated
from seqclf.data.storage.dataset import THRESHOLD, check_positive
from seqclf.data.storage.store import SplitCounts
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError, first_line
from seqclf.evaluation.decision import BY_HAND, RULES, Decision, override_threshold
from seqclf.evaluation.judge import decide
from seqclf.evaluation.result import Facts, RunResult
from seqclf.evaluation.score_files import FOLDER, read_run_scores, read_scores
from seqclf.evaluation.scores import NETWORK, Scores
from seqclf.evaluation.slices import JudgedRows, Slice, check_times, slices_by_period
from seqclf.report.reported import Reported, of_run, run_dataset, worst_mistakes
from seqclf.runs.run_files import read_result, read_run
from seqclf.settings.base import parse_options
from seqclf.settings.command_settings import EvaluateConfig
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import error_context
from seqclf.system.version import package_versions

OldModel = tuple[Scores, Decision | None]  # without a decision, it predicts the most probable label
OF_BUNDLE = "a bundle holds none; the run's report.html has the comparison"  # why there is no baseline
OF_SCORES = "no order-blind model has scored these rows"


@dataclass(frozen=True, kw_only=True)
class EvaluatedModel:
    """Model to judge. `old`: the one to compare it with. `report`: makes the content of the page.

    `found`: what else is known about the rows, for the JSON.
    """

    models: list[Scores]
    facts: Facts
    decision: DecisionOptions | Decision
    report: Callable[[RunResult], Reported]
    old: OldModel | None = None
    found: JsonObject = field(default_factory=dict)


def evaluated_run(config: EvaluateConfig) -> EvaluatedModel:
    """Read a finished run, with the target, the split and the positive label of the config."""
    run = Path(str(config.run))
    models, facts, settings = read_run(run)
    models = _chosen(models, settings, config)
    return EvaluatedModel(
        models=models,
        facts=facts,
        decision=_decision(config, settings["decision"], models),
        report=lambda result: of_run(run, run_dataset(settings, config.trust), result, facts),
        old=_old_model(config, models[-1].classes, models[-1]),
    )


def evaluated_scores(config: EvaluateConfig) -> EvaluatedModel:
    """Read a file of scores. The model of `against` completes what a file of another tool leaves out."""
    path, old = Path(str(config.scores)), _old_model(config, None)
    scores = replace(read_scores(path, None if old is None else old[0]), role=NETWORK, name=str(path))
    models = _chosen([scores], {}, config)
    return EvaluatedModel(
        models=models,
        facts=Facts(no_baseline=OF_SCORES),
        decision=_decision(config, {}, models),
        report=lambda result: Reported(
            title=f"Scores of {path.name}",
            result=result,
            versions=package_versions(),
            created=datetime.now().astimezone(),
            sources={result.split: str(path)},
        ),
        old=old,
    )


def evaluated_bundle(config: EvaluateConfig) -> EvaluatedModel:
    """Predict the rows of `data.test` with a bundle."""
    classifier, options = _opened(str(config.bundle), config)
    for line in classifier.warnings:
        console.print(line, style="yellow", soft_wrap=True)
    positive = config.positive or options.positive or classifier.manifest["positive"]
    if positive is not None:
        check_positive(positive, classifier.classes, "data.positive" if config.positive is None else "positive")
    # `config.threshold` is the threshold of the positive label, so the label in the config takes precedence over the
    # bundle's label.
    decision = override_threshold(classifier.decision, config.threshold, positive, classifier.classes)
    classifier.decision = decision
    time = _time_column(classifier, config)
    old = _old_model(config, classifier.classes) if Path(str(config.against)).is_dir() else None
    scores, predicted = _predicted(classifier, options, positive, time, explain=True)
    rows, refused, periods = predicted.outputs, predicted.refused, list[Slice]()
    if config.by is not None and predicted.times is not None:
        check_times(predicted.times, f"by={config.by}", str(time))
        judged = JudgedRows(rows, decision, classifier.classes, positive)
        periods = slices_by_period(judged, predicted.times, config.by)
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(rows.labels)} rows; the first: {refused[0]}")
    lines = [f"drifted since training: {each}" for each in predicted.drift]
    for line in lines:
        console.print(line, soft_wrap=True)
    found: JsonObject = {"refused": len(refused), "unknown_labels": predicted.unknown, "provider": classifier.provider}
    parts = {"no_cuda": classifier.no_cuda, "drift": [each.to_dict() for each in predicted.drift]}
    counts = SplitCounts(used=len(rows.labels), refused=len(refused), unknown_labels=predicted.unknown)
    facts = Facts(no_baseline=OF_BUNDLE, data={"test": counts}, warnings=[*lines, *refused])
    source = str(config.data["test"])
    return EvaluatedModel(
        models=[scores],
        facts=facts,
        decision=decision,
        report=lambda result: Reported(
            title=f"Evaluation on {Path(source).name}",
            result=result,
            facts=facts,
            mistakes=worst_mistakes(result, lambda row: predicted.mistakes[row]),
            versions=classifier.manifest["versions"],
            created=datetime.now().astimezone(),
            sources={"test": source},
            bundle=str(config.bundle),
            periods=periods,
        ),
        old=old or _old_model(config, scores.classes, scores),
        found=found | {key: value for key, value in parts.items() if value},
    )


def _opened(folder: str, config: EvaluateConfig) -> tuple[Classifier, DataOptions]:
    """Return a bundle, and the options by which it reads the labelled file; null ones are those of its training."""
    classifier = Classifier(folder, device=config.device, threads=config.threads)
    schema = classifier.schema
    # With a quote or an encoding that differs from training, the tokens would differ and the metrics would be wrong.
    trained_on = {**classifier.manifest["reader"], "label": schema.label, "id": schema.id}
    missing = {key: value for key, value in trained_on.items() if config.data.get(key) is None}
    if useless := [key for key in ("exclude", "cost") if config.data.get(key) is not None]:
        raise InputError(f"data.{useless[0]}={config.data[useless[0]]}", "is for trainings", "remove it")
    return classifier, with_generated(DataOptions.build(**{**config.data, **missing, "group_by": schema.group_by}))


def _predicted(
    classifier: Classifier, options: DataOptions, positive: str | None, time: str | None, *, explain: bool
) -> tuple[Scores, LabelledPredictions]:
    source, table = labelled_sources(classifier, options, "test")
    columns = {"group": options.group, "time": time, "weight": options.weight}
    predicted = predict_labelled(classifier, source, options.label, table, **columns, explain=explain)
    scores = Scores(
        role=NETWORK,
        name=NETWORK,
        model=str(classifier.folder),
        classes=classifier.classes,
        label_type=classifier.schema.label_type,
        positive=positive,
        splits={"test": predicted.outputs},
    )
    return scores, predicted


def _time_column(classifier: Classifier, config: EvaluateConfig) -> str | None:
    """Return the column of the times of the rows, None without `by`: `time`, or the first column that sorts events."""
    if config.by is None:
        return None
    names = [name for name in (config.time, *classifier.schema.order_by) if name is not None]
    if not names:
        raise InputError(f"by={config.by}", "needs the times of the rows", "name their column: time=COLUMN")
    return names[0]


def _old_model(config: EvaluateConfig, classes: list[str] | None, network: Scores | None = None) -> OldModel | None:
    """Return the model of `against`, None without one. Raises InputError if it has other `classes`.

    `network`: scores that complete a file of another tool.
    """
    if config.against is None:
        return None
    path = Path(config.against)

    def require_classes(found: list[str]) -> None:
        if classes is not None and found != classes:
            raise InputError(f"against={path}", "is for other classes", "name a model of the same labels")

    if (path / manifest.NAME).is_file():
        if config.bundle is None:
            raise InputError(f"against={path}", "is a bundle", "give bundle=DIR data.test=FILE, or name its run")
        old, options = _opened(str(path), config)
        require_classes(old.classes)
        scores, decision = _predicted(old, options, None, None, explain=False)[0], old.decision
    elif path.is_dir():
        with error_context(f"against={path}", "train again"):
            scores, decision = read_run_scores(path / FOLDER)[-1], read_result(path).decision
    else:
        scores, decision = read_scores(path, network), None
    require_classes(scores.classes)
    return replace(scores, name=str(path), model=str(path)), decision


def _chosen(models: list[Scores], settings: dict[str, Any], config: EvaluateConfig) -> list[Scores]:
    """Return scores for the positive label and the split of the config, without the rows that it leaves out."""
    known = settings.get("data", {}).get("cost") if settings else "cost"  # the column of a file of scores
    if isinstance(cost := config.decision.get("cost"), str) and cost != known:
        problem = f"the rows have the costs of {known}" if known else "the rows have no costs"
        raise InputError(f"decision.cost={cost}", problem, "train again")
    if (ignored := config.decision.pop("ignore", None)) is not None:
        models = _without_rows(Path(str(ignored)), models, settings)
    judging = [split for split in models[-1].splits if split not in ("train", THRESHOLD)]
    if not judging:
        raise InputError("scores", "hold no rows to judge by", "score the split validation or test")
    if config.split not in (None, *judging):
        remedy = f"the splits are {', '.join(judging)}"
        raise InputError(f"split={config.split}", "does not judge this model", remedy)
    if config.positive is not None:
        check_positive(config.positive, models[-1].classes, "positive")
        models = [replace(scores, positive=config.positive) for scores in models]
    # The last split judges. The others keep their order.
    ordered = [sorted(scores.splits.items(), key=lambda entry: entry[0] == config.split) for scores in models]
    return [replace(scores, splits=dict(splits)) for scores, splits in zip(models, ordered, strict=True)]


def _without_rows(path: Path, models: list[Scores], settings: dict[str, Any]) -> list[Scores]:
    """Return scores without the rows that set thresholds and whose ids are the lines of a file."""
    data, where, split = settings.get("data", {}), f"decision.ignore={path}", models[-1].threshold_split
    if settings and not (data.get("id") or data.get("group_by")):
        raise InputError(where, "the rows of the run have no ids of their own", "train with data.id=COLUMN")
    if split not in models[-1].splits:
        raise InputError(where, "there are no rows to set a threshold", "score the split validation too")
    remedy = "give a text file of ids, one a line"
    try:
        named = sorted(filter(None, {line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()}))
    except (OSError, ValueError) as error:
        raise InputError(where, f"cannot be read ({first_line(error)})", remedy) from None
    if not named:
        raise InputError(where, "names no row", remedy)
    found = Counter[str](np.asarray(models[-1].splits[split].ids).tolist())
    if other := next((name for name in named if found[name] != 1), None):
        if found[other]:
            raise InputError(where, f"{found[other]:,} rows of {split} have the id '{other}'", "make the ids unique")
        problem = f"no row that sets the threshold (split {split}) has the id '{other}'"
        raise InputError(where, problem, "name ids of threshold.parquet")
    kept = []
    for scores in models:
        if (rows := scores.splits.get(split)) is not None:
            places = np.flatnonzero(~np.isin(np.asarray(rows.ids).astype(str), named))
            if not len(places):
                raise InputError(where, f"leaves no row of {split} out of {len(rows.labels):,}", "name fewer ids")
            scores = replace(scores, splits={**scores.splits, split: rows.take(places)})
        kept.append(replace(scores, basis=BY_HAND))
    count = "1 row" if len(named) == 1 else f"{len(named):,} rows"
    show_note(f"{count} left out by hand (split {split}): no statement holds")
    return kept


def _decision(config: EvaluateConfig, settings: dict[str, Any], models: list[Scores]) -> DecisionOptions | Decision:
    """Return the decision of `threshold`, or the target of the config in place of that of the run."""
    given = {key: value for key, value in config.decision.items() if value is not None}
    if any(rule in given for rule in RULES):  # replaces the target of the run, with its confidence
        settings = {key: value for key, value in settings.items() if key not in (*RULES, "confidence")}
    options, network = parse_options(DecisionOptions, {**settings, **given}, "decision"), models[-1]
    if config.threshold is None:
        return options
    if rules := [rule for rule in RULES if rule in given]:
        raise InputError(f"threshold={config.threshold}", f"is beside decision.{rules[0]}", "set one of the two")
    # The threshold is one of probabilities, which the temperature of the run changes.
    return override_threshold(decide(models, options), config.threshold, network.positive, network.classes)
