"""`python -m seqclf.evaluate`: a bundle scored on a labelled file, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.config.command import command
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.runtime import Classifier
    from seqclf.evaluation.results import SplitOutputs


@command("evaluate")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Predict `data.test` and compare with its labels."""
    from seqclf.bundle.runtime import Classifier
    from seqclf.bundle.scoring import predict_labelled
    from seqclf.bundle.writers import check_output_path
    from seqclf.data.prepare import DataOptions, with_generated
    from seqclf.data.reading.label_table import LabelTable
    from seqclf.data.reading.sources import require_files
    from seqclf.data.storage.dataset import check_positive
    from seqclf.evaluation.decision import override_threshold
    from seqclf.evaluation.results import evaluate_split
    from seqclf.reporting.console import console, show_scores
    from seqclf.system.atomic_files import write_output

    output = config["output"] and Path(str(config["output"]))
    for place in (output, config["report"] and Path(str(config["report"]))):
        if place:
            check_output_path(place)
    classifier = Classifier(str(config["bundle"]), device=config["device"], threads=config["threads"])
    schema, given = classifier.schema, config["data"]
    # What the training files were like, where nothing else is said.
    usual = {**classifier.manifest["reader"], "label": schema.label, "id": schema.id}
    known = {key: value for key, value in usual.items() if given[key] is None}
    options = with_generated(DataOptions.build(**{**given, **known, "group_by": schema.group_by}))
    source = options.source("test")
    if source is None:
        raise InputError("data.test is not set; give the labelled file to score: data.test=test.parquet")
    keys = schema.group_by or (str(options.id),)
    require_files(source)
    where = options.source("labels")
    if where is not None:
        require_files(where)
    table = None if where is None else LabelTable(where, keys, options.label, None, None)
    positive = options.positive or classifier.manifest["positive"]
    if positive is not None:
        check_positive(positive, classifier.classes)
    classifier.decision = override_threshold(classifier.decision, config["threshold"], positive, classifier.classes)
    scored, shown, refused = predict_labelled(classifier, source, options.label, table)
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(scored.labels)} rows; the first: {refused[0]}")
    result = evaluate_split(scored, classifier.classes, positive, classifier.decision, intervals=True)
    show_scores({"test": result})
    result["refused"] = len(refused)
    if config["report"] is not None:
        title = f"Evaluation on {Path(str(source.path)).name}"
        _write_report(Path(str(config["report"])), title, classifier, positive, scored, shown, refused, result)
    if output:
        write_output(output, json.dumps({"test": result}, indent=1) + "\n")
    return result


def _write_report(
    path: Path,
    title: str,
    classifier: Classifier,
    positive: str | None,
    scored: SplitOutputs,
    shown: dict[int, tuple[str, str]],
    refused: list[str],
    result: dict[str, Any],
) -> None:
    from seqclf.evaluation.results import Outcome
    from seqclf.reporting.run.mistakes import worst_mistakes
    from seqclf.reporting.run.page import Report, write_report

    classes = classifier.classes
    outcome = Outcome({"test": scored}, classifier.decision, {"test": result})
    own = (scored.labels, outcome.predicted, outcome.probabilities, scored.lengths)
    report = Report(
        title=title,
        metrics=outcome.metrics,
        classes=classes,
        positive=positive,
        decision=outcome.decision,
        labels=scored.labels,
        probabilities=outcome.probabilities,
        mistakes=worst_mistakes(*own, classes, lambda row: shown[row]),
        warnings=refused,
        versions=classifier.manifest["versions"],
    )
    write_report(report, path)


if __name__ == "__main__":
    main()
