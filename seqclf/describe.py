"""`python -m seqclf.describe`: survey the statistics and possible faults of a dataset before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.command_options import DescribeConfig
    from seqclf.system.json_result import JsonObject

PAGE_ENDINGS, DATA_ENDING = (".html", ".htm"), ".json"


@command("describe", "seqclf.command_options.DescribeConfig")
def main(config: DescribeConfig) -> JsonObject:
    """Read a dataset and compute the survey. Print the survey, and write an HTML page and a JSON file."""
    from seqclf.system import signals

    page, data = output_paths(config.output)
    with signals.reported_outputs(page, data):
        return _describe(config, page, data)


def output_paths(output: str | None) -> tuple[Path | None, Path | None]:
    """Return the paths of the HTML page and the JSON file.

    `output`: path of the HTML page, path of the JSON file, or None. With an HTML page, a JSON file is also written.

    >>> output_paths("survey.html"), output_paths("survey.json")
    ((PosixPath('survey.html'), PosixPath('survey.json')), (None, PosixPath('survey.json')))
    """
    from seqclf.errors import InputError

    if not output:
        return None, None
    path = Path(output)
    if path.suffix.lower() == DATA_ENDING:
        return None, path
    if path.suffix.lower() not in PAGE_ENDINGS:
        raise InputError(
            f"output={output}", "unknown kind of file", "end it in .html (a page and its data) or .json (data)"
        )
    return path, path.with_suffix(DATA_ENDING)


def _describe(config: DescribeConfig, page: Path | None, data: Path | None) -> JsonObject:
    import json
    import time
    from dataclasses import replace

    from seqclf.bundle.row_writers import check_output_path
    from seqclf.data.prepare import prepare
    from seqclf.documents.html import render_document
    from seqclf.documents.terminal import console, show_document
    from seqclf.runs.overview import show_dataset
    from seqclf.survey.document import survey_document
    from seqclf.survey.guarantees import survey_guarantees
    from seqclf.survey.survey import code_advice, field_advice, ignored_advice, survey_content, survey_dataset
    from seqclf.system import progress
    from seqclf.system.atomic_files import write_output

    started = time.perf_counter()
    for path in (page, data):
        if path:
            check_output_path(path)
    dataset = prepare(config.data)
    fields = config.data.fields
    advice = [*field_advice(dataset.encoders, fields), *ignored_advice(dataset.schema, config.data)]
    show_dataset(dataset, advice)
    survey = survey_dataset(dataset, config.data, config.batching, baseline=config.baseline)
    survey = replace(survey, warnings=[*survey.warnings, *code_advice(dataset, fields)])
    guarantees = survey_guarantees(dataset, config.decision.holdout, config.decision.confidence)
    survey = replace(survey_content(survey, dataset), guarantees=guarantees)
    document = survey_document(survey)
    show_document(document)
    survey = replace(survey, warnings=[*advice, *survey.warnings])  # the terminal has shown the advice
    document = replace(document, alerts=survey.warnings)
    with progress.stage("writing the page"):
        if data:
            write_output(data, json.dumps(survey.to_dict(), indent=1, ensure_ascii=False) + "\n")
        if page:
            write_output(page, render_document(document))
    if data:
        console.print(f"written: {', '.join(str(path) for path in (page, data) if path)}", soft_wrap=True)
    outputs = {"page": page and str(page), "data": data and str(data)}
    return {**survey.summary(), **outputs, "seconds": round(time.perf_counter() - started, 2)}


if __name__ == "__main__":
    main()
