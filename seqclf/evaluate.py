"""`python -m seqclf.evaluate`: a bundle scored on a labelled file, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.config.command import command
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.options import EvaluateConfig
    from seqclf.bundle.runtime import Classifier
    from seqclf.data.options import DataOptions
    from seqclf.data.reading.label_table import LabelTable
    from seqclf.data.reading.sources import Source
    from seqclf.evaluation.results import SplitOutputs


@command("evaluate", "seqclf.bundle.options.EvaluateConfig")
def main(config: EvaluateConfig) -> dict[str, Any]:
    """Predict `data.test` and compare with its labels."""
    from seqclf.bundle.runtime import Classifier
    from seqclf.bundle.scoring import predict_labelled
    from seqclf.bundle.writers import check_output_path
    from seqclf.data.storage.dataset import check_positive
    from seqclf.evaluation.decision import override_threshold
    from seqclf.evaluation.results import evaluate_split
    from seqclf.reporting.console import console, show_scores
    from seqclf.system.atomic_files import write_output

    output, report = (Path(path) if path else None for path in (config.output, config.report))
    for path in (output, report):
        if path is not None:
            check_output_path(path)
    classifier = Classifier(config.bundle, device=config.device, threads=config.threads)
    options = _data_options(classifier, config)
    source, label_table = _sources(classifier, options)
    positive = options.positive or classifier.manifest["positive"]
    if positive is not None:
        check_positive(positive, classifier.classes)
    classifier.decision = override_threshold(classifier.decision, config.threshold, positive, classifier.classes)
    scored, shown, refused = predict_labelled(classifier, source, options.label, label_table)
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(scored.labels)} rows; the first: {refused[0]}")
    result = evaluate_split(scored, classifier.classes, positive, classifier.decision, intervals=True)
    show_scores({"test": result})
    result["refused"] = len(refused)
    if report is not None:
        title = f"Evaluation on {Path(source.path).name}"
        _write_report(report, title, classifier, positive, scored, shown, refused, result)
    if output is not None:
        write_output(output, json.dumps({"test": result}, indent=1) + "\n")
    return result


def _data_options(classifier: Classifier, config: EvaluateConfig) -> DataOptions:
    """Return the options of the labelled file: as the training files were, where the config leaves a key null."""
    from seqclf.data.options import DataOptions
    from seqclf.data.prepare import with_generated

    schema = classifier.schema
    trained_on = {**classifier.manifest["reader"], "label": schema.label, "id": schema.id}
    missing = {key: value for key, value in trained_on.items() if config.data.get(key) is None}
    return with_generated(DataOptions.build(**{**config.data, **missing, "group_by": schema.group_by}))


def _sources(classifier: Classifier, options: DataOptions) -> tuple[Source, LabelTable | None]:
    """Return where the rows, and the labels where they have a file of their own, are read from."""
    from seqclf.data.reading.label_table import LabelTable
    from seqclf.data.reading.sources import require_files

    source = options.source("test")
    if source is None:
        raise InputError("data.test is not set; give the labelled file to score: data.test=test.parquet")
    require_files(source)
    labels = options.source("labels")
    if labels is None:
        return source, None
    require_files(labels)
    keys = classifier.schema.group_by or (str(options.id),)
    return source, LabelTable(labels, keys, options.label, None, None)


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
    """Write the verdict as a page. `shown`: id and text of the rows that may be listed as mistakes, by row."""
    from seqclf.evaluation.results import Outcome
    from seqclf.reporting.run.mistakes import worst_mistakes
    from seqclf.reporting.run.page import Report, write_report

    classes = classifier.classes
    outcome = Outcome({"test": scored}, classifier.decision, {"test": result})
    rows = (scored.labels, outcome.predicted, outcome.probabilities, scored.lengths)
    report = Report(
        title=title,
        metrics=outcome.metrics,
        classes=classes,
        positive=positive,
        decision=outcome.decision,
        labels=scored.labels,
        probabilities=outcome.probabilities,
        mistakes=worst_mistakes(*rows, classes, lambda row: shown[row]),
        warnings=refused,
        versions=classifier.manifest["versions"],
    )
    write_report(report, path)


if __name__ == "__main__":
    main()
