"""`python -m seqclf.evaluate`: a bundle scored on a labelled file, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqclf.command import command
from seqclf.errors import InputError


@command("evaluate")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Predict `data.test` and compare with its labels."""
    from seqclf.bundle.labelled import predict_labelled
    from seqclf.bundle.runtime import Classifier
    from seqclf.data.dataset import check_positive
    from seqclf.data.labels import LabelTable
    from seqclf.data.prepare import DataOptions, with_generated
    from seqclf.data.sinks import check_place
    from seqclf.learning.scores import scores
    from seqclf.reporting.console import console, show_scores

    output = config["output"] and Path(str(config["output"]))
    if output:
        check_place(output)
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
    where = options.source("labels")
    table = None if where is None else LabelTable(where, keys, options.label, None, None)
    positive = options.positive or classifier.manifest["positive"]
    if positive is not None:
        check_positive(positive, classifier.classes)
    labels, probabilities, refused = predict_labelled(classifier, source, options.label, table)
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(labels)} rows; the first: {refused[0]}")
    result = scores(labels, probabilities, classifier.classes, positive)
    show_scores({"test": result})
    result["refused"] = len(refused)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps({"test": result}, indent=1) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
