"""Measure the figures of the README: each by the command a user would run, in a fresh process.

    python scripts/figures.py                                     what ships with the package
    python scripts/figures.py --trec DIR --sms DIR --hdfs DIR     the public sets too, from their original files

Prints a table, and one JSON line last.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = range(5)


def run(*arguments: str) -> tuple[dict, float]:
    """The JSON line of `python -m seqclf.…` and the seconds the whole process took."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    lines = done.stdout.strip().splitlines()
    return (json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}), seconds


def train(folder: Path, *overrides: str) -> dict:
    """One training run: its test scores, and the seconds from command to bundle."""
    _, seconds = run("seqclf.train", f"hydra.run.dir={folder}", *overrides)
    found = json.loads((folder / "metrics.json").read_text())["test"]
    return {**found, **{f"positive {key}": value for key, value in found.get("positive", {}).items()}, "wall": seconds}


def over_seeds(work: Path, name: str, metrics: list[str], *overrides: str) -> dict:
    """Mean and range of test metrics over the seeds, with the whole process's seconds."""
    runs = [train(work / name / str(seed), f"seed={seed}", *overrides) for seed in SEEDS]
    values = {metric: [one[metric] for one in runs] for metric in [*metrics, "wall"]}
    return {
        metric: {"mean": round(statistics.mean(found), 4), "min": round(min(found), 4), "max": round(max(found), 4)}
        for metric, found in values.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trec", "sms", "hdfs"):
        parser.add_argument(f"--{name}", metavar="DIR")
    chosen = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        results["japanese_vowels"] = over_seeds(work, "vowels", ["accuracy", "recall"])
        results["toy, 5 epochs"] = over_seeds(
            work, "toy", ["accuracy", "loss"], "data=toy", "trainer.max_epochs=5", "logger=none"
        )
        sets = {
            "trec": ("trec", ["accuracy", "recall"]),
            "sms": ("sms_spam", ["positive f1", "recall"]),
            "hdfs": ("hdfs", ["positive f1", "positive average_precision", "recall"]),
        }
        for name, (experiment, metrics) in sets.items():
            if path := getattr(chosen, name):
                overrides = (f"experiment={experiment}", f"path={path}", "logger=none")
                results[experiment] = over_seeds(work, name, metrics, *overrides)
        helps = [run("seqclf.train", "--help")[1] for _ in SEEDS]
        code = "import time; t = time.perf_counter(); import seqclf.bundle.runtime; print(time.perf_counter() - t)"
        imports = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in SEEDS]
        results["train --help"] = {"seconds": {"mean": round(statistics.median(helps), 3)}}
        results["import seqclf.bundle.runtime"] = {"seconds": {"mean": round(statistics.median(imports), 3)}}
    for name, found in results.items():
        for metric, value in found.items():
            spread = f" ({value['min']} to {value['max']})" if "min" in value else ""
            print(f"{name:30} {metric:28} {value['mean']}{spread}")
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
