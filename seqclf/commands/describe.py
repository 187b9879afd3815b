"""Survey the statistics and possible faults of a dataset before training."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from seqclf.bundle.outputs import check_output_path
from seqclf.data.prepare_data import prepare
from seqclf.documents.terminal import show_section
from seqclf.evaluation.holdout import chosen_by_validation
from seqclf.runs.overview import show_dataset
from seqclf.settings.command_settings import DescribeConfig
from seqclf.survey.outlook import threshold_outlooks
from seqclf.survey.sections import survey_sections
from seqclf.survey.survey import survey_dataset
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonObject


def main(config: DescribeConfig) -> JsonObject:
    """Read a dataset, print what to know before training, and write the whole survey to a JSON file."""
    started = time.perf_counter()
    output = Path(config.output) if config.output else None
    if output:
        check_output_path(output, ".json")
    dataset = prepare(config.data)
    show_dataset(dataset)
    survey = survey_dataset(dataset, config.data, baseline=config.baseline)
    settings = config.model_dump()
    thresholds = threshold_outlooks(dataset, config.decision, settings, chosen_by_validation(settings))
    survey = replace(survey, thresholds=thresholds)
    for section in survey_sections(survey):
        show_section(section)
    if output:
        write_output(output, json.dumps(survey.to_dict(), indent=1, ensure_ascii=False) + "\n")
    return {**survey.summary(), "output": output and str(output), "seconds": round(time.perf_counter() - started, 2)}
