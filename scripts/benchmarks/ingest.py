"""Measure ingest at scale: generated card events from Parquet to an encoded dataset, in time and memory.

    python scripts/benchmarks/ingest.py [--millions 1 10 100] [--sorted] [--folder DIR]

Each measurement runs in a fresh process. Next to `prepare`, DuckDB alone reads the same files, and sorts them by card
and time. Then an epoch of training batches is gathered from the store while resident memory is watched. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEAN_LENGTH = 33.3  # events of a card
HEADINGS = ("events", "sequences", "DuckDB reads", "DuckDB sorts", "prepare", "events/s", "peak memory", "again")
HEADINGS += ("resident while training, start and end",)
FIELDS = {
    "gap": {"kind": "time", "column": "time"},
    "merchant": "category",
    "amount": "number",
    "channel": "category",
    "country": "category",
}
SELECT = "SELECT card, time, merchant, amount, channel, country FROM '{path}'"


def generate(folder: str, millions: float) -> dict[str, Any]:
    """Write the event tables, as many million events for train."""
    from seqclf.data.builtin import transactions

    rows = {"train": int(millions * 1e6 / MEAN_LENGTH), "validation": 100, "test": 100}
    Path(folder).mkdir(parents=True)
    transactions.write(Path(folder), rows, mean_length=MEAN_LENGTH, fraud_share=0.01, seed=0)
    return {}


def sort_file(folder: str, _: float) -> dict[str, Any]:
    """Store the events of a card together, as a warehouse clustered by card does."""
    import duckdb

    path = f"{folder}/train.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '4GB'; SET temp_directory = '{folder}/spill'")
        connection.execute(f"COPY (FROM '{path}' ORDER BY card, time) TO '{path}.sorted' (FORMAT parquet)")
    Path(f"{path}.sorted").replace(path)
    return {}


def read_only(folder: str, _: float) -> dict[str, Any]:
    """Read the events with DuckDB alone."""
    return _stream(SELECT, folder)


def sort_only(folder: str, _: float) -> dict[str, Any]:
    """Read the events with DuckDB alone, sorted by card and time."""
    return _stream(f"{SELECT} ORDER BY card, time", folder)


def _stream(query: str, folder: str) -> dict[str, Any]:
    import duckdb

    with duckdb.connect() as connection:
        # The limit that seqclf sets too; DuckDB's default is most of the machine's memory.
        connection.execute("SET enable_progress_bar = false; SET memory_limit = '1GB'")
        connection.execute(f"SET temp_directory = '{folder}/spill'")
        reader = connection.sql(query.format(path=f"{folder}/train.parquet")).to_arrow_reader(122_880)
        return {"events": sum(record_batch.num_rows for record_batch in reader)}


def prepare(folder: str, _: float) -> dict[str, Any]:
    """Prepare the dataset."""
    dataset = _dataset(folder)
    return {
        "events": sum(int(split.sequences.offsets[-1]) for split in dataset.splits.values()),
        "sequences": sum(len(split.sequences) for split in dataset.splits.values()),
    }


def reopen(folder: str, _: float) -> dict[str, Any]:
    """Open the prepared dataset from the cache."""
    return {"reused": _dataset(folder).reused}


def batches(folder: str, _: float) -> dict[str, Any]:
    """Gather an epoch as the training loader does. Return resident memory after a tenth of it and at its end."""
    from seqclf.batching.batches import BatchDataset
    from seqclf.batching.plan import plan_batches
    from seqclf.system.resources import resident_mb

    split = _dataset(folder).splits["train"]
    started = time.perf_counter()
    plan = plan_batches(split.sequences.lengths, max_tokens=16384, max_sequences=256, pool_batches=20, seed=0, epoch=0)
    planning_seconds = time.perf_counter() - started
    batch_dataset, memory_mb = BatchDataset(split), []
    for step, rows in enumerate(plan):
        batch_dataset[rows]
        if step % max(1, len(plan) // 20) == 0:  # 20 readings, of which the third is a tenth into the epoch
            memory_mb.append(resident_mb())
    return {"lengths_per_s": len(split.sequences) / planning_seconds, "resident_mb": [memory_mb[2], memory_mb[-1]]}


def _dataset(folder: str) -> Any:
    from seqclf.data.prepare_data import DataOptions, prepare

    source = {"name": "ingest", "train": f"{folder}/train.parquet", "label": "fraud", "positive": "yes"}
    grouping = {"group_by": "card", "order_by": "time", "fields": FIELDS, "cache_dir": f"{folder}/cache"}
    return prepare(DataOptions.build(**source, **grouping))


STAGES: dict[str, Callable[[str, float], dict[str, Any]]] = {
    stage.__name__: stage for stage in (generate, sort_file, read_only, sort_only, prepare, reopen, batches)
}


def run_stage(name: str, folder: str, millions: float) -> dict[str, Any]:
    """Run one stage in this process. Add its `seconds` and the `peak_mb` of the process to its result."""
    from seqclf.system.resources import peak_mb

    started = time.perf_counter()
    result = STAGES[name](folder, millions)
    return {**result, "seconds": time.perf_counter() - started, "peak_mb": peak_mb()}


def run_stage_in_fresh_process(name: str, folder: str, millions: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", name, "--folder", folder, "--millions", str(millions)]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if completed.returncode:
        raise SystemExit(completed.stderr)
    return json.loads(completed.stdout.splitlines()[-1])


def table_row(results: dict[str, Any]) -> str:
    """Return a row of the Markdown table from the results of all stages."""
    prepared, seconds = results["prepare"], {name: result["seconds"] for name, result in results.items()}
    start_mb, end_mb = results["batches"]["resident_mb"]
    cells = [
        f"{prepared['events'] / 1e6:.1f} M",
        f"{prepared['sequences']:,}",
        f"{seconds['read_only']:.1f} s",
        f"{seconds['sort_only']:.1f} s",
        f"{seconds['prepare']:.1f} s",
        f"{prepared['events'] / seconds['prepare'] / 1e6:.2f} M",
        f"{prepared['peak_mb']:.0f} MB",
        f"{seconds['reopen']:.2f} s",
        f"{start_mb:.0f} MB, {end_mb:.0f} MB",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 10, 100])
    parser.add_argument("--folder", default=None, help="where to generate (2 GB and some 10 GB of cache at 100 M)")
    parser.add_argument("--sorted", action="store_true", help="events in the order of the cards, not of time")
    parser.add_argument("--step", choices=STAGES, help="run one stage only, in this process")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(run_stage(options.step, options.folder, options.millions[0])))
        return
    stages = [name for name in STAGES if options.sorted or name != "sort_file"]
    results = []
    with tempfile.TemporaryDirectory(dir=options.folder) as work_folder:
        print(f"| {' | '.join(HEADINGS)} |")
        print(f"|{'---|' * len(HEADINGS)}")
        for millions in options.millions:
            folder = f"{work_folder}/{millions:g}"
            measured = {name: run_stage_in_fresh_process(name, folder, millions) for name in stages}
            print(table_row(measured), flush=True)
            results.append({"millions": millions, **measured})
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
