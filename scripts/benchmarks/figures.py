"""Measure the figures of the README: each by the command a user would run, in a fresh process.

    python scripts/benchmarks/figures.py                                        what ships with the package, 25 minutes
    python scripts/benchmarks/figures.py --trec DIR --sms DIR --hdfs DIR --physionet DIR    the public sets too
    python scripts/benchmarks/figures.py --only hdfs --hdfs DIR                 one of them

With `--lanes 2` two runs go side by side, a thread each. Prints a table, and one JSON line last.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

TWO_CLASSES = [f"{model}.positive.{name}" for name in ("f1", "average_precision") for model in ("test", "baseline")]


class Figure(NamedTuple):
    """A command that is run with each of some seeds.

    `overrides`: of `seqclf.train`, with `{seed}` and `{path}`; `metrics`: places in metrics.json, averaged over the
    runs; `reached`: of how many runs a metric is at least so much.
    """

    overrides: str
    metrics: list[str]
    seeds: int = 5
    reached: tuple[tuple[str, float], ...] = ()
    option: str | None = None  # the public set it needs


FIGURES = {
    "japanese_vowels": Figure("seed={seed}", ["test.accuracy", "test.recall", "baseline.accuracy"]),
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
        reached=(("test.positive.recall", 0.8),),
    ),
}


def run(*arguments: str) -> float:
    """The seconds that `python -m seqclf.…` took."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return time.perf_counter() - start


def train(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """What metrics.json says of one run, and the `seconds` from command to bundle."""
    seconds = run("seqclf.train", f"hydra.run.dir={folder}", "logger=none", *overrides)
    return {**json.loads((folder / "metrics.json").read_text()), "seconds": seconds}


def value_at(found: dict[str, Any], place: str) -> float:
    """The precision of no alerts is 0."""
    value: Any = found
    for key in place.split("."):
        value = value[key]
    return float(0.0 if value is None and place.endswith(".precision") else value)


def summarise(figure: Figure, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each metric the mean and the range, and how many runs reached what."""
    summary: dict[str, Any] = {}
    for place in [*figure.metrics, "seconds"]:
        values = [value_at(one, place) for one in runs]
        summary[place] = {
            "mean": round(statistics.mean(values), 4),
            "min": round(min(values), 4),
            "max": round(max(values), 4),
        }
    for place, least in figure.reached:
        count = sum(value_at(one, place) >= least for one in runs)
        summary[f"{place} >= {least}"] = {"runs": count, "of": len(runs)}
    return summary


def measure(chosen: dict[str, Figure], paths: dict[str, str], lanes: int, work: Path) -> dict[str, Any]:
    threads = ["runtime.threads=1"] if lanes > 1 else []
    with ThreadPoolExecutor(lanes) as pool:
        begun = {}
        for name, figure in chosen.items():
            begun[name] = []
            for seed in range(figure.seeds):
                given = {"seed": seed, "path": paths.get(figure.option or "")}
                overrides = [part.format(**given) for part in figure.overrides.split()]
                folder = work / name.replace(", ", "-").replace(" ", "-") / str(seed)
                begun[name].append(pool.submit(train, folder, [*overrides, *threads]))
        try:
            done = {name: [one.result() for one in runs] for name, runs in begun.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)  # no further runs: the figures would lack one
            raise
    return {name: summarise(chosen[name], runs) for name, runs in done.items()}


def starts() -> dict[str, Any]:
    """How long what everybody waits for takes, the median of five."""
    code = "import time; t = time.perf_counter(); import seqclf.bundle.runtime; print(time.perf_counter() - t)"
    each: dict[str, Callable[[], float]] = {
        "train --help": lambda: run("seqclf.train", "--help"),
        "import seqclf.bundle.runtime": lambda: float(subprocess.check_output([sys.executable, "-c", code])),
    }
    return {
        name: {"seconds": {"mean": round(statistics.median(take() for _ in range(5)), 3)}}
        for name, take in each.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trec", "sms", "hdfs", "physionet"):
        parser.add_argument(f"--{name}", metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="keep the run folders there")
    asked = vars(parser.parse_args())
    wanted = asked["only"] or [name for name, one in FIGURES.items() if one.option is None or asked[one.option]]
    chosen = {name: FIGURES[name] for name in wanted}
    missing = sorted({str(one.option) for one in chosen.values() if one.option is not None and not asked[one.option]})
    if missing:
        parser.error(f"give the folder of {', '.join('--' + name for name in missing)}")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(chosen, asked, asked["lanes"], Path(asked["keep"] or folder).absolute())
    if asked["only"] is None:
        results |= starts()
    for name, found in results.items():
        for metric, value in found.items():
            spread = f" ({value['min']} to {value['max']})" if "min" in value else ""
            told = f"{value['mean']}{spread}" if "mean" in value else f"{value['runs']} of {value['of']} runs"
            print(f"{name:30} {metric:38} {told}")
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
