"""Judge a bundle on labelled rows, a finished run, or scores of any tool, and compare it with another model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from seqclf.bundle import manifest
from seqclf.bundle.outputs import check_output_path
from seqclf.commands.subjects import evaluated_bundle, evaluated_run, evaluated_scores
from seqclf.config.command_keys import flat_keys, nested_defaults
from seqclf.errors import InputError
from seqclf.evaluation.judge import compare_with, judge
from seqclf.evaluation.score_files import write_scores
from seqclf.report.description import show, write_page
from seqclf.report.reported import Reported
from seqclf.settings.command_settings import EvaluateConfig
from seqclf.settings.typed_text import similar_file
from seqclf.system.atomic_files import explain_disk_errors, write_output
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import METRICS
from seqclf.system.state_validation import read_json

PAGE, SCORES = "report.html", "scores.parquet"  # files of the folder `output`, beside metrics.json
INPUT = "evaluated"  # key of metrics.json that names what was judged
SHARED = ("bundle", "run", "scores", "against", "output", "positive", "threshold")
OF_INPUT = {
    "bundle": ("data", "by", "time", "device", "threads"),
    "run": ("decision", "split", "trust"),
    "scores": ("decision", "split"),
}  # blocks and keys that only one of the inputs takes


class Evaluated(JsonObject):
    """The JSON line of `evaluate`. The exit code is 1 unless the model is shown to be better than that of `against`."""

    @property
    def exit_code(self) -> int:
        return 0 if "against" not in self or self["against"]["better"] else 1


def main(config: EvaluateConfig) -> Evaluated:
    """Judge one of the inputs, print the verdict, and write the page and the figures."""
    name, output = _input(config), Path(config.output)
    _check_output(output, config)
    read = {"bundle": evaluated_bundle, "run": evaluated_run, "scores": evaluated_scores}[name]
    model = read(config)
    network, monitor = model.models[-1], model.facts.monitor
    result = judge(model.models, model.facts, model.decision)
    if config.split is not None:
        result = replace(result, next_step=None)  # it is about the split of the run
    against = None
    if model.old is not None:
        judged = replace(network, splits=result.rows)
        against = compare_with(judged, result.split, result.decision, *model.old, monitor=monitor)
    reported = replace(model.report(result), against=against)
    show(reported)
    found = {**model.found, **_found(reported, config)}
    inputs = {Path(path).resolve() for path in (config.scores, config.against) if path is not None}
    for path in (output / file for file in (PAGE, SCORES)):  # files of an earlier evaluation
        if path.resolve() not in inputs:
            with explain_disk_errors(path):
                path.unlink(missing_ok=True)
    forcing = {"forcing": [row.to_dict() for row in result.forcing]} if result.forcing else {}
    content = {INPUT: getattr(config, name), **result.to_dict(), **forcing, **found}
    # First, so that the folder of a killed evaluation is known as one.
    write_output(output / METRICS, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if name == "bundle":
        write_scores(output / SCORES, network)
    write_page(output / PAGE, reported)
    facts: JsonObject = {"split": result.split, "use": not result.not_yet, "decision": result.decision.to_dict()}
    return Evaluated(report=str(output / PAGE), **facts, **result.metrics.to_dict(), **found)


def _input(config: EvaluateConfig) -> str:
    """Return the name of the input. Raises InputError for none, several, missing ones, and keys that are for others."""
    given = [name for name in ("bundle", "run", "scores") if getattr(config, name) is not None]
    if len(given) != 1:
        where, problem = (f"{given[0]}={getattr(config, given[0])}", "is beside another input") if given else (None, "")
        raise InputError(where, problem or "nothing to judge", "give bundle=DIR data.test=FILE, run=RUN or scores=FILE")
    name = given[0]
    defaults = flat_keys(nested_defaults(EvaluateConfig))
    values = flat_keys(config.model_dump())  # a target by label, or fields, have keys below those of the tree
    typed = [key for key, value in values.items() if (value or None) != (defaults.get(key) or None)]
    for key in typed:
        if key not in SHARED and key.partition(".")[0] not in OF_INPUT[name]:
            raise InputError(key, f"is not for {name}=", f"remove {key}")
    for key in (name, "against"):
        value = getattr(config, key)
        if value is not None and not Path(value).exists():
            raise InputError(f"{key}={value}", "no such file or folder", similar_file(value) or "check the path")
    if name == "run" and (Path(str(config.run)) / manifest.NAME).is_file():
        raise InputError(f"run={config.run}", "is a bundle", "write bundle=DIR data.test=FILE")
    return name


def _check_output(output: Path, config: EvaluateConfig) -> None:
    """Check the folder first, because the predictions of a long file would be lost if it were wrong."""
    where, remedy = f"output={output}", "name another folder"
    if output.exists() and not output.is_dir():
        raise InputError(where, "is not a folder", remedy)
    held = {path.name for path in output.iterdir()} if output.is_dir() else set()
    if held and not (held <= {PAGE, METRICS, SCORES} and is_evaluation(output / METRICS)):
        raise InputError(where, "holds other files than those of an evaluation", remedy)
    for name in (PAGE, METRICS, SCORES):
        check_output_path(output / name)
    sources = {"data.test": config.data["test"], "data.labels": config.data["labels"], "against": config.against}
    for key, source in sources.items() if config.bundle else ():
        if source is not None and (output / SCORES).resolve() == Path(source).resolve():
            raise InputError(where, f"holds {key}={source}, which would be replaced", remedy)


def is_evaluation(path: Path) -> bool:
    """Return True if a file is the metrics.json of an evaluation."""
    try:
        return INPUT in read_json(path)
    except (OSError, ValueError, TypeError):
        return False


def _found(reported: Reported, config: EvaluateConfig) -> JsonObject:
    """Return the scores over time and the comparison for the JSON."""
    found: JsonObject = {}
    if reported.periods:
        found["periods"] = [part.to_dict() for part in reported.periods]
    if (other := reported.against) is not None:
        better, compared = other.comparisons[0].is_better, [each.to_dict() for each in other.comparisons]
        found["against"] = {"model": config.against, "rows": other.rows, "better": better, "comparisons": compared}
    return found
