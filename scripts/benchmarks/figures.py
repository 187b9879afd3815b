"""Measure the figures of the README: each by the command a user would run, in a fresh process.

    python scripts/benchmarks/figures.py                                        what ships with the package, 25 minutes
    python scripts/benchmarks/figures.py --trec DIR --sms DIR --hdfs DIR --physionet DIR    the public sets too
    python scripts/benchmarks/figures.py --only hdfs --hdfs DIR                 one of them

With `--lanes 2` two runs go on at a time, with one thread each. Prints a table, then one JSON line. With `--record` the
measured figures replace those of the same names in docs/figures.json, from which the README's table is written.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import recorded

TWO_CLASSES = [f"{model}.positive.{name}" for name in ("f1", "average_precision") for model in ("test", "baseline")]
START_REPEATS = 5


class Figure(NamedTuple):
    """A training command that runs once for each seed.

    `overrides`: of `seqclf.train`, with the placeholders `{seed}` and `{path}`. `metrics`: dotted keys of metrics.json,
    averaged over the runs. `thresholds`: metrics with the value that as many runs as possible should reach. `option`:
    the public data set it needs, as in `--option DIR`.
    """

    overrides: str
    metrics: list[str]
    seeds: int = 5
    thresholds: tuple[tuple[str, float], ...] = ()
    option: str | None = None


FIGURES = {
    "default": Figure(
        "seed={seed}",
        ["test.accuracy", "test.recall", "baseline.accuracy", "baseline.recall", "test.alarms", "cpu_seconds"],
    ),
    "japanese_vowels": Figure(
        "data=japanese_vowels seed={seed}", ["test.accuracy", "test.recall", "baseline.accuracy"]
    ),
    "toy": Figure("data=toy trainer.max_epochs=5 seed={seed}", ["test.accuracy", "test.loss"]),
    "trec": Figure(
        "experiment=trec path={path} seed={seed}", ["test.accuracy", "test.recall", "baseline.accuracy"], option="trec"
    ),
    "sms_spam": Figure("experiment=sms_spam path={path} seed={seed}", TWO_CLASSES, option="sms"),
    "hdfs": Figure("experiment=hdfs path={path} seed={seed}", TWO_CLASSES, option="hdfs"),
    "hdfs, unseen sequences": Figure(
        "experiment=hdfs path={path} seed={seed} data.split.on_leak=drop", TWO_CLASSES, option="hdfs"
    ),
    "physionet2012, folds": Figure(
        "experiment=physionet2012 path={path} data.split.fold={seed}",
        [f"{model}.positive.{name}" for name in ("auroc", "average_precision") for model in ("test", "baseline")],
        option="physionet",
    ),
    "transactions": Figure(
        "experiment=transactions seed={seed}",
        ["test.positive.recall", "test.positive.precision", *TWO_CLASSES[2:]],
        seeds=20,
        thresholds=(("test.positive.recall", 0.8),),
    ),
}


class Times(NamedTuple):
    """Times of a process: from its start to its end, and of all cores."""

    seconds: float
    cpu_seconds: float


def run_module(*arguments: str) -> Times:
    """Run `python -m …` and return its times. Exit with its error output if it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(arguments)} failed:\n{errors.read()}")
    return Times(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)


def train(run_folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train once. Return metrics.json, and the `seconds` and `cpu_seconds` from the start to the finished bundle."""
    times = run_module("seqclf.train", f"hydra.run.dir={run_folder}", "logger=none", *overrides)
    return {**json.loads((run_folder / "metrics.json").read_text()), **times._asdict()}


def metric_value(metrics: dict[str, Any], dotted_key: str) -> float:
    """Return a nested value. A list counts as its length.

    A precision that is undefined, because there were no alerts, counts as 0.
    """
    value: Any = metrics
    for key in dotted_key.split("."):
        value = value[key]
    if isinstance(value, list):
        return float(len(value))
    return float(0.0 if value is None and dotted_key.endswith(".precision") else value)


def summarize(figure: Figure, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and range of each metric, and the number of runs that reach each threshold."""
    summary: dict[str, Any] = {}
    for key in [*figure.metrics, "seconds"]:
        values = [metric_value(run, key) for run in runs]
        summary[key] = {
            "mean": round(statistics.mean(values), 4),
            "min": round(min(values), 4),
            "max": round(max(values), 4),
        }
    for key, threshold in figure.thresholds:
        reaching_runs = sum(metric_value(run, key) >= threshold for run in runs)
        summary[f"{key} >= {threshold}"] = {"runs": reaching_runs, "of": len(runs)}
    return summary


def measure(figures: dict[str, Figure], paths: dict[str, str], lanes: int, folder: Path) -> dict[str, Any]:
    """Train every figure with every seed, `lanes` runs at a time, and return the summaries by name."""
    threads = ["runtime.threads=1"] if lanes > 1 else []
    with ThreadPoolExecutor(lanes) as pool:
        futures = {}
        for name, figure in figures.items():
            folder_name = name.replace(", ", "-").replace(" ", "-")
            path = paths.get(figure.option or "")
            futures[name] = [
                pool.submit(train, folder / folder_name / str(seed), [*_overrides(figure, seed, path), *threads])
                for seed in range(figure.seeds)
            ]
        try:
            runs = {name: [future.result() for future in by_seed] for name, by_seed in futures.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)  # a figure that lacks a run is worth nothing, so stop early
            raise
    return {name: summarize(figures[name], by_seed) for name, by_seed in runs.items()}


def _overrides(figure: Figure, seed: int, path: str | None) -> list[str]:
    # Split first: a path may hold spaces.
    return [part.format(seed=seed, path=path) for part in figure.overrides.split()]


def measure_starts() -> dict[str, Any]:
    """Return the median time of a command's help, and of the import that prediction needs."""
    code = "import time; t = time.perf_counter(); import seqclf.bundle.runtime; print(time.perf_counter() - t)"
    measurements: dict[str, Callable[[], float]] = {
        "train --help": lambda: run_module("seqclf.train", "--help").seconds,
        "import seqclf.bundle.runtime": lambda: float(subprocess.check_output([sys.executable, "-c", code])),
    }
    results = {}
    for name, measure_once in measurements.items():
        median = statistics.median(measure_once() for _ in range(START_REPEATS))
        results[name] = {"seconds": {"mean": round(median, 3)}}
    return results


def print_results(results: dict[str, Any]) -> None:
    """Print one line for each metric of each figure, then all of them as one JSON line."""
    for name, summary in results.items():
        for metric, value in summary.items():
            spread = f" ({value['min']} to {value['max']})" if "min" in value else ""
            text = f"{value['mean']}{spread}" if "mean" in value else f"{value['runs']} of {value['of']} runs"
            print(f"{name:30} {metric:38} {text}")
    print(json.dumps(results, separators=(",", ":")))


def with_commands(results: dict[str, Any], figures: dict[str, Figure]) -> dict[str, Any]:
    """Return the results, each with the command and the number of its runs."""
    commands = {
        name: {
            "command": " ".join(["seqclf train", figure.overrides.format(seed="N", path="DIR")]),
            "runs": figure.seeds,
        }
        for name, figure in figures.items()
    }
    return {name: {**commands.get(name, {}), **summary} for name, summary in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trec", "sms", "hdfs", "physionet"):
        parser.add_argument(f"--{name}", metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="keep the run folders there")
    parser.add_argument("--record", action="store_true", help="write docs/figures.json")
    options = vars(parser.parse_args())
    runnable = [name for name, figure in FIGURES.items() if figure.option is None or options[figure.option]]
    figures = {name: FIGURES[name] for name in options["only"] or runnable}
    missing = sorted({figure.option for figure in figures.values() if figure.option and not options[figure.option]})
    if missing:
        parser.error(f"set the folder of {', '.join('--' + name for name in missing)}")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(figures, options, options["lanes"], Path(options["keep"] or folder).absolute())
    if options["only"] is None:
        results |= measure_starts()
    if options["record"]:
        recorded.record(with_commands(results, figures))
    print_results(results)


if __name__ == "__main__":
    main()
