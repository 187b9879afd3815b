"""`python -m seqclf.describe`: survey a dataset before it is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.survey.options import DescribeConfig
    from seqclf.system.json_result import JsonObject


@command("describe", "seqclf.survey.options.DescribeConfig")
def main(config: DescribeConfig) -> JsonObject:
    """Prepare the dataset, survey it, print the survey and write its page."""
    import time

    from seqclf.bundle.row_writers import check_output_path
    from seqclf.data.prepare import prepare
    from seqclf.reporting.console import console, show_dataset
    from seqclf.reporting.describe.page import write_page
    from seqclf.reporting.describe.tables import show_survey
    from seqclf.survey.survey import survey_dataset

    started = time.perf_counter()
    output = Path(config.output) if config.output else None
    if output:
        check_output_path(output)
    dataset = prepare(config.data)
    show_dataset(dataset)
    survey = survey_dataset(dataset, config.data, config.batching.model_dump(), baseline=config.baseline)
    show_survey(survey)
    if output:
        write_page(survey, output)
        console.print(f"page: {output}", soft_wrap=True)
    result = survey.to_dict()
    lengths = result.pop("lengths")["all"]  # without the histogram, the last line stays readable
    return {**result, "lengths": lengths, "seconds": round(time.perf_counter() - started, 2)}


if __name__ == "__main__":
    main()
