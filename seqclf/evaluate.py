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
    import numpy as np

    from seqclf.bundle.runtime import Classifier
    from seqclf.data.prepare import DataOptions, with_generated
    from seqclf.learning.scores import scores
    from seqclf.reporting.console import console, show_scores

    classifier = Classifier(config["bundle"], device=config["device"], threads=config["threads"])
    label = config["data"]["label"] or classifier.schema.label
    options = with_generated(DataOptions.build(**{**config["data"], "label": label}))
    source = options.source("test")
    if source is None:
        raise InputError("data.test is not set; give the labelled file to score: data.test=test.parquet")
    codes = {name: code for code, name in enumerate(classifier.classes)}
    labels, probabilities, refused = [], [], []
    for batch, found in classifier.predict_source(source, options.label):
        truths = batch.columns.column("label").to_pylist()
        for row, (truth, error) in enumerate(zip(truths, found.errors, strict=True)):
            if error is None and truth not in codes:
                known = f"is '{truth}', which the bundle does not know" if truth else "is empty"
                error = f"{options.label} {known}"
            if error is not None:
                refused.append(f"{batch.file}: row {batch.first_row + row}: {error}")
            else:
                labels.append(codes[truth])
                probabilities.append(found.probabilities[row])
    if not labels:
        raise InputError(refused[0] if refused else f"{source}: has no rows; give a file with a row per sequence")
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(labels)} rows; the first: {refused[0]}")
    positive = options.positive or classifier.manifest["positive"]
    result = scores(np.array(labels), np.stack(probabilities), classifier.classes, positive)
    show_scores({"test": result})
    result["refused"] = len(refused)
    if config["output"] is not None:
        Path(config["output"]).write_text(json.dumps({"test": result}, indent=1) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
