"""Command `python -m seqclf.report`: write the report of a finished run from the files in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command
from seqclf.errors import InputError

if TYPE_CHECKING:
    from typing import Any

    from seqclf.config.targets import Trust
    from seqclf.data.storage.dataset import Dataset
    from seqclf.report.options import ReportConfig
    from seqclf.system.json_result import JsonObject


@command("report", "seqclf.report.options.ReportConfig")
def main(config: ReportConfig) -> JsonObject:
    """Judge the scores of a run, and write its report."""
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.config.options import parse_options
    from seqclf.evaluation.judge import judge
    from seqclf.evaluation.options import DecisionOptions
    from seqclf.report.run_files import read_run
    from seqclf.report.run_report import write_run_report

    run = Path(config.run)
    page = Path(config.output) if config.output else run / "report.html"
    check_output_path(page)
    contenders, facts, settings = read_run(run)
    decision = parse_options(DecisionOptions, settings["decision"], "decision")
    judged = judge(contenders, facts, decision)
    write_run_report(page, _dataset(settings, decision, config.trust), judged, facts, run)
    return {"report": str(page), "split": judged.result.split, "use": not judged.result.not_yet}


def _dataset(settings: dict[str, Any], decision: Any, trust: Trust) -> Dataset | None:
    """Return the data of a run, None with a note if its files are gone or its code is not trusted."""
    from seqclf.data.prepare import prepare
    from seqclf.documents.terminal import show_note
    from seqclf.evaluation.decisions.holdout import hold_out
    from seqclf.report.run_report import run_data

    try:
        return hold_out(prepare(run_data(settings, trust)), decision)
    except InputError as error:
        show_note(f"the report shows no rows: {error}")
        return None


if __name__ == "__main__":
    main()
