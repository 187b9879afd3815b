"""Measure prediction with a bundle against bare ONNX Runtime, and calls of a few rows.

    python scripts/benchmarks/serving.py [--rows 100000] [--rounds 3] [--folder DIR] [OVERRIDES of seqclf.train …]

Sequences with log-normal lengths (mean 20, at most 400 tokens) and one category field of 1,000 values are written to
Parquet, and an LSTM (bidirectional, 96 units, one epoch) is trained on a few of them. In turn, in each round:

- `file`: seconds of `seqclf predict` from Parquet to Parquet, as it reports them: reading, checks, encoding, writing;
- `bare`: a loop over `session.run` of ONNX Runtime with all cores, over batches of 8,192 tokens that were encoded,
  sorted by length and padded before the clock starts; nothing is written;
- `row`, `rows_16`: milliseconds of `Classifier.predict` for one Python row, and per row of 16; `run`: milliseconds of
  `session.run` for the same row.

Prints one JSON line: medians, and `ratio`, tokens/s of `file` over those of `bare`, the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf import Classifier
from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.data.ragged import Ragged, list_offsets
from seqclf.system.resources import available_cpus

MEAN_LENGTH, SIGMA, MAX_LENGTH, VALUES = 20.0, 0.8, 400, 1000
TRAINED_ROWS, BARE_TOKENS = 2000, 8192
MODEL = ["model=lstm", "model.hidden_size=96", "trainer.max_epochs=1", "baseline=false", "logger=none"]


def write_rows(path: Path, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.lognormal(np.log(MEAN_LENGTH) - SIGMA**2 / 2, SIGMA, rows).astype(int).clip(1, MAX_LENGTH)
    offsets = list_offsets(lengths)
    tokens = random.integers(0, VALUES, offsets[-1])
    lists = pa.ListArray.from_arrays(offsets.astype(np.int32), tokens)
    pq.write_table(pa.table({"items": lists, "label": random.integers(0, 2, rows)}), path)


def trained(folder: Path, overrides: Sequence[str]) -> Path:
    write_rows(folder / "train.parquet", TRAINED_ROWS, 0)
    data = ["data=files", f"data.train={folder / 'train.parquet'}", "data.label=label", "data.fields={items: category}"]
    command = [sys.executable, "-m", "seqclf.train", *data, *MODEL, f"hydra.run.dir={folder / 'run'}", *overrides]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "run/bundle"


def predict_file(bundle: Path, folder: Path) -> float:
    paths = [f"bundle={bundle}", f"input={folder / 'rows.parquet'}", f"output={folder / 'scores.parquet'}"]
    command = [sys.executable, "-m", "seqclf.predict", *paths]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["seconds"])


def bare_loop(bundle: Path, rows: pa.Table) -> Callable[[], float]:
    """Return a function that runs all batches, which are ready, and returns the seconds."""
    classifier = Classifier(bundle, device="cpu")
    items = rows["items"].combine_chunks()
    ids = classifier.encoders["items"].encode(pa.record_batch({"items": items})).arrays["items"]
    sequences = Ragged(list_offsets(items.value_lengths().to_numpy()), {"items": ids})
    plan = plan_batches(
        sequences.lengths, max_tokens=BARE_TOKENS, max_sequences=None, pool_batches=None, seed=0, epoch=0
    )
    batches = [pad(sequences, batch) for batch in plan]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cpus()
    session = onnxruntime.InferenceSession(bundle / "model.onnx", options, providers=["CPUExecutionProvider"])

    def run() -> float:
        started = time.perf_counter()
        for fields, lengths in batches:
            session.run(["logits"], {**fields, "lengths": lengths})
        return time.perf_counter() - started

    return run


def milliseconds(call: Callable[[], object], calls: int = 300) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options, overrides = parser.parse_known_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="serving-"))
    folder.mkdir(parents=True, exist_ok=True)
    bundle = trained(folder, overrides)
    write_rows(folder / "rows.parquet", int(options.rows), 1)
    table = pq.read_table(folder / "rows.parquet")
    bare, classifier = bare_loop(bundle, table), Classifier(bundle, device="cpu")
    some = table["items"].slice(0, 16).to_pylist()
    session = onnxruntime.InferenceSession(bundle / "model.onnx", providers=["CPUExecutionProvider"])
    row = {"items": np.array([some[0]]) % VALUES, "lengths": np.array([len(some[0])])}
    rounds = []
    for _ in range(options.rounds):
        seconds = predict_file(bundle, folder), bare()
        calls = {
            "row_ms": milliseconds(lambda: classifier.predict(some[:1])),
            "rows_16_ms": milliseconds(lambda: classifier.predict(some), 60) / 16,
            "run_ms": milliseconds(lambda: session.run(["logits"], row)),
        }
        rounds.append({"file_s": seconds[0], "bare_s": seconds[1], "ratio": seconds[1] / seconds[0], **calls})
    tokens = int(table["items"].combine_chunks().value_lengths().to_numpy().sum())
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    shown = {"rows": table.num_rows, "tokens": tokens, "tokens_per_s": round(tokens / medians["file_s"])}
    print(json.dumps(shown | {name: round(value, 3) for name, value in medians.items()}))


if __name__ == "__main__":
    main()
