"""Compare the network of the default command with simple models on the same test rows.

    python scripts/benchmarks/ladder.py [model=gru …] [--sets markov waves …] [--seeds 0 1]
    python scripts/benchmarks/ladder.py --aeon PYTHON --lightgbm PYTHON
    python scripts/benchmarks/ladder.py --sets trec names sms_spam hdfs signals/eye … --data FOLDER

Generated sets need no files. Each of the others is a folder of FOLDER: those of conf/experiment with their experiments,
those of `signals` as SET_train.parquet and SET_test.parquet with the columns x and label. Each set is trained by
`python -m seqclf.train`. Rivals outside of the package are fitted to the same training rows, and validation chooses
their settings: TF-IDF of n-grams with a linear SVM for tokens (scikit-learn), MiniRocket for signals (aeon, in a
separate environment whose Python is `--aeon`), and LightGBM on aggregates of each sequence (`--lightgbm PYTHON`), early
stopped. *Ceiling* is the score of the rule that made a generated table. Prints a Markdown table, and one JSON line at
the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

import seqclf
from seqclf.data.storage.dataset import Dataset

sys.path[:0] = [str(Path(__file__).parent)]

import event_tables  # noqa: E402
import waveforms  # noqa: E402
from event_tables import TABLES  # noqa: E402

AEON_WORKER, BOOSTED_WORKER = (
    Path(__file__).parent / "peer_frameworks" / f"{name}.py" for name in ("minirocket", "boosted_aggregates")
)
BESIDE = ("rival", "lightgbm", "ceiling")
RUNGS = ("order-blind", "linear", "statistics", "categories", "ngrams", "kernels", "recurrent", "network")
QUIET = ("logger=none", "export=false", "trainer.enable_progress_bar=false", "trainer.accelerator=cpu")
LETTERS = 12
SPLITS = {"train": 600, "validation": 200, "test": 1000}
Generator = np.random.Generator


def bag(label: int, time: int, random: Generator) -> np.ndarray:
    """Letters whose frequencies depend on the class."""
    weights = np.where(np.arange(LETTERS) % 3 == label, 1.5, 1.0)
    return random.choice(LETTERS, time, p=weights / weights.sum())


def markov(label: int, time: int, random: Generator) -> np.ndarray:
    """Letters whose next letter depends on the class: one more, two more or three more, a third of the time."""
    letters = random.integers(LETTERS, size=time)
    for at in np.flatnonzero(random.random(time - 1) < 0.3) + 1:
        letters[at] = (letters[at - 1] + label + 1) % LETTERS
    return letters


def trigram(label: int, time: int, random: Generator) -> np.ndarray:
    """Random letters with the same three letters, one after the other, in an order that depends on the class."""
    letters = random.integers(LETTERS, size=time)
    start = random.integers(time - 2)
    letters[start : start + 3] = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])[label]
    return letters


def order(label: int, time: int, random: Generator) -> np.ndarray:
    """Three letters, far from each other, in an order that depends on the class."""
    letters = random.integers(3, LETTERS, size=time)
    places = np.sort(random.choice(time, 3, replace=False))
    letters[places] = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])[label]
    return letters


def bag_and_order(label: int, time: int, random: Generator) -> np.ndarray:
    """Both `bag` and `order` tell a part of the class."""
    return np.where(random.random(time) < 0.5, bag(label, time, random), order(label, time, random))


TOKENS: dict[str, Callable[[int, int, Generator], np.ndarray]] = {
    function.__name__: function for function in (bag, markov, trigram, order, bag_and_order)
}
TOKEN_CLASSES = 3


def token_table(name: str, rows: int, seed: int) -> pa.Table:
    """Return `rows` labelled sequences of letters, of 8 to 40 tokens."""
    random = np.random.default_rng([seed, list(TOKENS).index(name)])
    labels = random.permutation(np.arange(rows) % TOKEN_CLASSES)
    sequences = [TOKENS[name](int(label), int(random.integers(8, 41)), random) for label in labels]
    letters = [[chr(ord("a") + letter) for letter in sequence] for sequence in sequences]
    return pa.table({"letters": letters, "label": [f"class{label}" for label in labels]})


def write_generated(name: str, seed: int, folder: Path) -> list[str]:
    """Write the splits of a generated set into `folder`. Return the overrides that train on them."""
    for number, (split, rows) in enumerate((SPLITS | ({"test": 5000} if name in TABLES else {})).items()):
        if name in TOKENS:
            table = token_table(name, rows, 100 * seed + number)
        elif name in TABLES:
            table, probabilities = event_tables.generate(name, rows, 100 * seed + number)
            np.save(folder / f"{split}_probabilities.npy", probabilities)
        else:
            table = waveforms.generate(name.removeprefix("wave/"), rows, 100 * seed + number, standardized=False)
        pq.write_table(table, folder / f"{split}.parquet")
    files = (f"data.{split}={folder}/{split}.parquet" for split in SPLITS)
    more = ["data.positive=yes", *event_tables.OVERRIDES.get(name, [])] if name in TABLES else []
    if name.startswith("wave/"):  # amplitudes span six decades
        scaled = ", ".join(f"{column}: {{kind: number, scale: sequence}}" for column in table.column_names[:-1])
        more = [f"data.fields={{{scaled}}}"]
    return ["data=files", "data.label=label", *files, *more]


def overrides_of(name: str, seed: int, folder: Path, data: Path | None) -> list[str]:
    """Return the overrides of a set. `data`: folder of the sets that are not generated."""
    if name in GENERATED:
        return write_generated(name, seed, folder)
    if name in BUILT_IN:
        return [f"data={name}"]
    if data is None:
        raise SystemExit(f"{name}: needs --data")
    if name.startswith("signals/"):
        files = [f"data.{split}={data}/{name}_{split}.parquet" for split in ("train", "test")]
        return ["data=files", "data.label=label", *files]
    return [f"experiment={name}", f"path={data / FOLDERS.get(name, name)}"]


GENERATED = (*TOKENS, *TABLES, *(f"wave/{family}" for family in waveforms.FAMILIES))
BUILT_IN = ("spoken_arabic_digits", "japanese_vowels")
FOLDERS = {"hdfs": "hdfs_2pct"}


def score(dataset: Dataset, scores: np.ndarray, split: str) -> float:
    """Return the average precision of the positive class, or the accuracy without one. `scores`: (N, C) or (N,)."""
    labels = np.asarray(dataset.splits[split].labels)
    if dataset.positive is None:
        return float((scores.argmax(1) == labels).mean())
    positive = dataset.classes.index(dataset.positive)
    return float(average_precision_score(labels == positive, scores[:, positive]))


def ngrams(dataset: Dataset) -> float:
    """Return the test score of TF-IDF n-grams with a linear SVM. Validation chooses n and C."""
    texts = {split: list(map(_words, _tokens(dataset, split))) for split in dataset.splits}
    labels = np.asarray(dataset.splits["train"].labels)
    best: tuple[float, float] = (-1.0, -1.0)
    for longest, penalty in product((2, 3, 4), (0.05, 0.3, 2.0)):
        vectorizer = TfidfVectorizer(
            analyzer="word", token_pattern=r"\S+", ngram_range=(1, longest), sublinear_tf=True, lowercase=False
        )
        model = LinearSVC(C=penalty).fit(vectorizer.fit_transform(texts["train"]), labels)
        scores = {}
        for split in ("validation", "test"):
            values = model.decision_function(vectorizer.transform(texts[split]))
            scores[split] = score(dataset, _by_class(values, model.classes_, len(dataset.classes)), split)
        if scores["validation"] > best[0]:  # of equal settings the first counts: test must not choose
            best = scores["validation"], scores["test"]
    return best[1]


def _tokens(dataset: Dataset, split: str) -> list[np.ndarray]:
    sequences = dataset.splits[split].sequences
    fields = [np.asarray(values) for values in sequences.fields.values() if np.issubdtype(values.dtype, np.integer)]
    codes = np.array(["_".join(map(str, token)) for token in zip(*(field.tolist() for field in fields), strict=True)])
    return np.split(codes, np.asarray(sequences.offsets)[1:-1])


def _words(tokens: np.ndarray) -> str:
    return " ".join(["<", *tokens, ">"])


def _by_class(values: np.ndarray, known: np.ndarray, classes: int) -> np.ndarray:
    """(N, C) scores of `decision_function`, which has one column for two classes."""
    result = np.full((len(values), classes), -np.inf)
    result[:, known] = np.stack([-values, values], 1) if values.ndim == 1 else values
    return result


def minirocket(dataset: Dataset, python: str, folder: Path) -> float:
    """Return the test score of aeon's MiniRocket with its ridge head."""
    arrays = {}
    for split in ("train", "validation", "test"):
        rows = dataset.splits[split]
        numbers = [np.asarray(values) for values in rows.sequences.fields.values() if values.dtype == np.float32]
        arrays |= {
            f"{split}_values": np.concatenate(numbers, axis=1),
            f"{split}_offsets": np.asarray(rows.sequences.offsets),
            f"{split}_labels": np.asarray(rows.labels),
        }
    np.savez(folder / "rows.npz", **arrays)
    done = subprocess.run([python, AEON_WORKER, folder / "rows.npz"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"minirocket: {done.stderr}")
    return float(json.loads(done.stdout)["accuracy"])


def boosted(dataset: Dataset, python: str, folder: Path) -> float:
    """Return the test score of LightGBM on aggregates of the sequences, with numbers in the units of the data."""
    positive = -1 if dataset.positive is None else dataset.classes.index(dataset.positive)
    arrays: dict[str, Any] = {"classes": len(dataset.classes), "positive": positive}
    for split in ("train", "validation", "test"):
        rows = dataset.splits[split]
        arrays |= {f"{split}_offsets": np.asarray(rows.sequences.offsets), f"{split}_labels": np.asarray(rows.labels)}
        for name, encoder in dataset.encoders.items():
            fields = rows.sequences.static if encoder.field.static else rows.sequences.fields
            place = "static_" if encoder.field.static else ""
            values = np.asarray(fields[name])
            if values.dtype == np.float32:
                original = getattr(encoder, "original_values", None)
                values = values if original is None else original({name: values})
                arrays[f"{split}_{place}numbers_{name}"] = values
            elif values.ndim == 1:
                arrays[f"{split}_{place}ids_{name}"] = values
    np.savez(folder / "aggregated.npz", **arrays)
    done = subprocess.run([python, BOOSTED_WORKER, folder / "aggregated.npz"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"lightgbm: {done.stderr}")
    return float(json.loads(done.stdout)["score"])


def ceiling(dataset: Dataset, folder: Path) -> float | None:
    """Return the test score of the rule that made a generated table, None for other sets."""
    path = folder / "test_probabilities.npy"
    if not path.is_file():
        return None
    yes = np.load(path)
    random, found = np.random.default_rng(0), []
    for _ in range(50):  # equal probabilities have no order; one that is drawn stands for that of a model
        drawn = yes + 1e-6 * random.random(len(yes))
        columns = [drawn if label == "yes" else 1 - drawn for label in dataset.classes]
        found.append(score(dataset, np.stack(columns, axis=1), "test"))
    return mean(found)


def measure(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train on a set. Return the scores of rungs and rival, and the CPU seconds."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        overrides = [*overrides_of(name, seed, folder, options.data), f"data.cache_dir={folder}/cache", f"seed={seed}"]
        overrides += options.overrides
        dataset = seqclf.load_data(None, label=None, overrides=overrides)
        start = _cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-m", "seqclf.train", *overrides, *QUIET, f"hydra.run.dir={folder}/run"],
            capture_output=True,
            text=True,
        )
        seconds = _cpu_seconds() - start
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        metrics = json.loads((folder / "run" / "metrics.json").read_text())
        kinds = {field["kind"] for field in dataset.description()["fields"]}
        rival = None
        if kinds == {"number"} and options.aeon:
            rival = minirocket(dataset, options.aeon, folder)
        elif "number" not in kinds:
            rival = ngrams(dataset)
        trees = boosted(dataset, options.lightgbm, folder) if options.lightgbm else None
        best = ceiling(dataset, folder)
    others = [metrics.get("baseline"), *(metrics.get("others") or [])]
    found = {"network": metrics["test"], **{other["name"]: other for other in others if other}}
    scores = {name: _score(found.get(name), dataset.positive) for name in RUNGS}
    beside = {"rival": rival, "lightgbm": trees, "ceiling": best}
    return {"set": name, "seed": seed, **scores, **beside, "cpu_s": round(seconds, 1)}


def _score(model: dict[str, Any] | None, positive: str | None) -> float | None:
    """Return accuracy, or with a positive label its average precision."""
    if model is None:
        return None
    return model["accuracy"] if positive is None else model["positive"]["average_precision"]


def _cpu_seconds() -> float:
    """Return the CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table_row(results: list[dict[str, Any]]) -> str:
    """Return a row of the Markdown table: means over the seeds."""
    cells = [results[0]["set"]]
    for key in (*RUNGS, *BESIDE):
        values = [result.get(key) for result in results]
        cells.append("-" if any(value is None for value in values) else f"{mean(values):.3f}")
    return f"| {' | '.join(cells)} | {mean(result['cpu_s'] for result in results):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(GENERATED))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--data", type=Path, help="folder of the sets that are not generated")
    parser.add_argument("--aeon", help="Python of an environment with aeon")
    parser.add_argument("overrides", nargs="*", help="of seqclf.train")
    parser.add_argument("--lightgbm", help="Python of an environment with LightGBM and scikit-learn")
    options = parser.parse_intermixed_args()
    print(f"| {' | '.join(['set', *RUNGS, *BESIDE, 'CPU s'])} |\n|{'---|' * (len(RUNGS) + len(BESIDE) + 2)}")
    found = []
    for name in options.sets:
        results = [measure(name, seed, options) for seed in options.seeds]
        print(table_row(results), flush=True)
        found += results
    print(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main()
