"""Reading of a run folder: what each step of a run has left for the next ones, and for commands."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.store import SplitCounts
from seqclf.documents.formatting import shown_path
from seqclf.errors import InputError, first_line
from seqclf.evaluation.judge import judged_rows
from seqclf.evaluation.result import Facts, RunResult
from seqclf.evaluation.score_files import FOLDER, read_run_scores
from seqclf.evaluation.scores import Scores, network_of
from seqclf.evaluation.targets import ForcingRow
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import CURVES, DATA, FIT, FORCING, METRICS
from seqclf.system.state_validation import read_json, read_yaml

WHOLE = ("epoch", "step")  # columns of metrics.csv that hold whole numbers


class FinishedRun(NamedTuple):
    """Content of a run folder that judging reads. `settings`: the content of config.yaml."""

    models: list[Scores]
    facts: Facts
    settings: dict[str, Any]


def read_run(run: Path) -> FinishedRun:
    """Read the scores, the facts and the config of a finished run. Raises InputError for a folder without them."""
    models = read_run_scores(run / FOLDER)
    try:
        settings = dict(read_yaml(run / "config.yaml"))
        if not isinstance(settings["decision"], dict):
            raise ValueError("its decision is no mapping")
        return FinishedRun(models, read_facts(run, settings), settings)
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"is not as this version writes a run ({first_line(error)})"
        raise InputError(f"run={run}", problem, "train again") from None


def read_facts(run: Path, settings: Mapping[str, Any]) -> Facts:
    """Return what data.json, fit.json and metrics.csv say about a run. `settings`: content of its config.yaml."""
    data, fitted, history = read_json(run / DATA), read_json(run / FIT), _history(run / CURVES)
    report = {split: SplitCounts.from_dict(rows) for split, rows in data["report"].items()}
    chosen = ["epoch" if settings["monitor"] is not None and len(history) > 1 else None, fitted["by_validation"]]
    bundle = run / "bundle"
    return Facts(
        monitor=settings["monitor"],
        chosen=tuple(choice for choice in chosen if choice),
        no_baseline=no_baseline(settings, report),
        settings=settings,
        epochs=len(history),
        best_epoch=best_epoch(history, fitted["step"]),
        steps=history[-1]["step"] if history else 0,
        seconds=fitted["seconds"],
        weights=fitted["weights"],
        bundle=shown_path(bundle) if settings["export"] or bundle.is_dir() else None,
        data=report,
        leaks=LeakReport.from_dict(data["leaks"]),
        trained_steps=fitted["step"],
        history=tuple(history),
        warnings=tuple(data["warnings"]),
    )


def _history(path: Path) -> list[JsonObject]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{key: int(text) if key in WHOLE else float(text) for key, text in row.items() if text} for row in rows]


def best_epoch(history: Sequence[JsonObject], trained_steps: int | None) -> int | None:
    """Return the epoch, from 0, that ended after `trained_steps` optimizer steps, or `None`."""
    return next((row["epoch"] for row in history if row["step"] == trained_steps), None)


def no_baseline(settings: Mapping[str, Any], report: Mapping[str, SplitCounts]) -> str | None:
    """Return the reason why a run leaves the order-blind model out, None if it is scored."""
    if not settings["baseline"]:
        return "baseline=false"
    tokens, limit = sum(counts.tokens for counts in report.values()), settings["baseline_limit"]
    return f"{tokens:,} tokens are more than baseline_limit={limit}" if tokens > limit else None


def read_result(run: Path) -> RunResult:
    """Return the result in metrics.json, with the rows that force its threshold."""
    result = RunResult.from_dict(read_json(run / METRICS))
    if not (run / FORCING).is_file():
        return result
    return replace(result, forcing=tuple(ForcingRow.from_dict(row) for row in pq.read_table(run / FORCING).to_pylist()))


def read_judged(run: Path, options: DecisionOptions) -> RunResult:
    """Return the result of a judged run, with its scored rows. `options`: those that it was judged by."""
    result, network = read_result(run), network_of(read_run_scores(run / FOLDER))
    return replace(result, rows=judged_rows(network, result.decision, options))
