"""Ingest at scale: generated card events from Parquet to an encoded dataset, in time and memory.

    python scripts/benchmarks/ingest.py [--millions 1 10 100] [--sorted] [--folder DIR]

Each measurement is a process of its own. Beside `prepare`, the same files in DuckDB alone: read only, and sorted by
card and time. Then an epoch of training batches is gathered from the store while resident memory is watched. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEAN_LENGTH = 33.3
HEADINGS = ("events", "sequences", "DuckDB reads", "DuckDB sorts", "prepare", "events/s", "peak memory", "again")
HEADINGS += ("resident while training, start and end",)
FIELDS = {
    "gap": {"kind": "time", "column": "time"},
    "merchant": "category",
    "amount": "number",
    "channel": "category",
    "country": "category",
}


def generate(folder: str, millions: float) -> dict[str, Any]:
    from seqclf.data.builtin import transactions

    rows = {"train": int(millions * 1e6 / MEAN_LENGTH), "validation": 100, "test": 100}
    Path(folder).mkdir(parents=True)
    transactions.write(Path(folder), rows, mean_length=MEAN_LENGTH, fraud_share=0.01, seed=0)
    return {}


def sort_file(folder: str, _: float) -> dict[str, Any]:
    """The events of a card together, as a warehouse that is clustered by card has them."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '4GB'; SET temp_directory = '{folder}/spill'")
        path = f"{folder}/train.parquet"
        connection.execute(f"COPY (FROM '{path}' ORDER BY card, time) TO '{path}.sorted' (FORMAT parquet)")
    Path(f"{path}.sorted").replace(path)
    return {}


def read_only(folder: str, _: float) -> dict[str, Any]:
    return _stream("SELECT card, time, merchant, amount, channel, country FROM '{}'", folder)


def sort_only(folder: str, _: float) -> dict[str, Any]:
    return _stream("SELECT card, time, merchant, amount, channel, country FROM '{}' ORDER BY card, time", folder)


def _stream(query: str, folder: str) -> dict[str, Any]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false; SET memory_limit = '1GB'")
        connection.execute(f"SET temp_directory = '{folder}/spill'")
        reader = connection.sql(query.format(f"{folder}/train.parquet")).to_arrow_reader(122_880)
        return {"events": sum(batch.num_rows for batch in reader)}


def prepare(folder: str, _: float) -> dict[str, Any]:
    dataset = _dataset(folder)
    return {
        "events": sum(int(split.sequences.offsets[-1]) for split in dataset.splits.values()),
        "sequences": sum(len(split.sequences) for split in dataset.splits.values()),
    }


def reopen(folder: str, _: float) -> dict[str, Any]:
    return {"reused": _dataset(folder).reused}


def batches(folder: str, _: float) -> dict[str, Any]:
    """Gather an epoch, as the training loader does; resident memory after a tenth of it, and at its end."""
    from seqclf.batching.datamodule import BatchDataset
    from seqclf.batching.plan import plan_batches

    split = _dataset(folder).splits["train"]
    started = time.perf_counter()
    plan = plan_batches(split.sequences.lengths, max_tokens=16384, max_sequences=256, pool_batches=20, seed=0, epoch=0)
    planned = time.perf_counter() - started
    gathered, seen = BatchDataset(split), []
    for step, rows in enumerate(plan):
        gathered[rows]
        if step % max(1, len(plan) // 20) == 0:
            seen.append(_resident_mb())
    return {"lengths_per_s": len(split.sequences) / planned, "resident_mb": [seen[2], seen[-1]]}


def _dataset(folder: str) -> Any:
    from omegaconf import OmegaConf

    from seqclf.data.prepare import DataOptions, prepare

    plain: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/data/files.yaml"), resolve=True)
    chosen = {"name": "ingest", "train": f"{folder}/train.parquet", "label": "fraud", "positive": "yes"}
    grouped = {"group_by": "card", "order_by": "time", "fields": FIELDS, "cache_dir": f"{folder}/cache"}
    return prepare(DataOptions.build(**{**plain, **chosen, **grouped}))


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


STEPS = {step.__name__: step for step in (generate, sort_file, read_only, sort_only, prepare, reopen, batches)}


def measured(name: str, folder: str, millions: float) -> dict[str, Any]:
    """Run one step in a process of its own."""
    command = [sys.executable, __file__, "--step", name, "--folder", folder, "--millions", str(millions)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _row(found: dict[str, Any]) -> str:
    prepared, seconds = found["prepare"], {name: entry["seconds"] for name, entry in found.items()}
    start, end = found["batches"]["resident_mb"]
    cells = [
        f"{prepared['events'] / 1e6:.1f} M",
        f"{prepared['sequences']:,}",
        f"{seconds['read_only']:.1f} s",
        f"{seconds['sort_only']:.1f} s",
        f"{seconds['prepare']:.1f} s",
        f"{prepared['events'] / seconds['prepare'] / 1e6:.2f} M",
        f"{prepared['peak_mb']:.0f} MB",
        f"{seconds['reopen']:.2f} s",
        f"{start:.0f} MB, {end:.0f} MB",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 10, 100])
    parser.add_argument("--folder", default=None, help="where to generate (2 GB and some 10 GB of cache at 100 M)")
    parser.add_argument("--sorted", action="store_true", help="events in the order of the cards, not of time")
    parser.add_argument("--step", choices=STEPS)
    chosen = parser.parse_args()
    if chosen.step:
        started = time.perf_counter()
        found = STEPS[chosen.step](chosen.folder, chosen.millions[0])
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(json.dumps({**found, "seconds": seconds, "peak_mb": peak}))
        return
    results = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
        print(f"| {' | '.join(HEADINGS)} |")
        print("|---|---|---|---|---|---|---|---|---|")
        for millions in chosen.millions:
            folder = f"{work}/{millions:g}"
            wanted = [name for name in STEPS if chosen.sorted or name != "sort_file"]
            found = {name: measured(name, folder, millions) for name in wanted}
            print(_row(found), flush=True)
            results.append({"millions": millions, **found})
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
