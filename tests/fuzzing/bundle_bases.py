"""Bundles from which the fuzzer starts.

Their weights are random, so that no training is needed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing.bases import bases
from fuzzing.cases import options_of
from fuzzing.files import write

ROWS, CLASSES = 40, ("a", "b")
NEW = "new.parquet"  # rows that a bundle predicts
NEW_ROWS = 12
FILE_PREFIX = "file "  # beginning of the names of the bundles that are trained on a base of `fuzzing.bases`


def _tokens() -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(1, 9, length).tolist() for length in random.integers(1, 12, ROWS)]


def _columns(kind: str) -> dict[str, list[Any]]:
    """Return the columns of the training table of a kind of bundle, without the label."""
    random, tokens = np.random.default_rng(6), _tokens()
    if kind in ("text", "subwords"):
        return {"text": [" ".join(f"w{token}" for token in row) for row in tokens]}
    if kind == "trees":
        return {"tree": [f"(a (b w{row[0]}) (a (b w{row[-1]}) (a end)))" for row in tokens]}
    if kind == "static":
        return {
            "shop": [[f"s{token}" for token in row] for row in tokens],
            "amount": [random.lognormal(size=len(row)).tolist() for row in tokens],
            "country": random.choice(["de", "fr", "it"], ROWS).tolist(),
            "age": random.integers(18, 90, ROWS).tolist(),
        }
    return {"events": tokens}


STATIC = {"fields": {"shop": "category", "amount": "number"}, "static": {"country": "category", "age": "number"}}
SUBWORDS = {"kind": "text", "tokenizer": "bpe", "min_count": 1, "max_size": 30}
OPTIONS: dict[str, dict[str, Any]] = {
    "static": STATIC,
    "trees": {"fields": {"tree": {"kind": "tree"}}},
    "subwords": {"fields": {"text": SUBWORDS}},
}
KINDS = ("tokens", "text", "static", "trees", "adaptive", "subwords")


def export(folder: Path, names: Iterable[str]) -> None:
    """Export bundles to `folder`/NAME/bundle, unless they are there. Beside them are NEW and the same rows as JSON.

    `names`: names of `KINDS`, or `FILE_PREFIX` and the name of a base of `fuzzing.bases`.
    """
    missing = [name for name in names if not (folder / name / "bundle/manifest.json").is_file()]
    if missing:
        from support.torchlib_registry import share_registry  # imports PyTorch, which the workers do not need

        share_registry()
    for name in missing:
        unfinished, kind = folder / "unfinished", name.removeprefix(FILE_PREFIX)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _export_of_file(unfinished, kind) if name.startswith(FILE_PREFIX) else _export_kind(unfinished, kind)
        unfinished.rename(folder / name)  # only now, or an export that failed would count as there


def _export_of_file(folder: Path, kind: str) -> None:
    from support.untrained_task import make_task

    from seqclf.data.prepare_data import prepare
    from seqclf.runs.bundle_export import write_bundle
    from seqclf.settings.data_settings import DataOptions

    base = bases()[kind]
    write(base, folder, base.columns)
    description = prepare(DataOptions.build(**options_of(base, folder))).description()
    reads_trees = any(spec["kind"] == "parents" for spec in description["fields"])
    write_bundle(_tree_task(description) if reads_trees else make_task(description), folder / "bundle", {})


def _export_kind(folder: Path, kind: str) -> None:
    from support.untrained_task import data_options, make_task

    from seqclf.bundle.reference_data import PredictedRows, ReferenceData
    from seqclf.data.prepare_data import prepare
    from seqclf.runs.bundle_export import write_bundle

    columns = _columns(kind)
    table = pa.table({"id": [f"r{row}" for row in range(ROWS)], **columns, "label": list(CLASSES) * (ROWS // 2)})
    pq.write_table(table, folder / "train.parquet")
    new = table.slice(0, NEW_ROWS).drop_columns("label")
    pq.write_table(new, folder / NEW)
    (folder / "rows.json").write_text(json.dumps(new.drop_columns("id").to_pylist()))
    options = {"train": str(folder / "train.parquet"), "id": "id", **OPTIONS.get(kind, {})}
    dataset = prepare(data_options(folder / "cache", **options))
    rows = dataset.splits["train"]
    reference = ReferenceData(dataset.encoders, dataset.classes, "b")
    probabilities = np.full((len(rows.labels), 2), 0.5)
    reference.fit(PredictedRows(rows.sequences, rows.lengths_before_truncation, probabilities, None), rows.sequences)
    changes = _settings("adaptive") if kind == "adaptive" else {"bidirectional": False}
    description = dataset.description()
    task = _tree_task(description) if kind == "trees" else make_task(description, **changes)
    if kind == "adaptive":
        task.model.threshold.fill_(0.3)
    write_bundle(task, folder / "bundle", {}, reference=reference)


def _tree_task(description: dict[str, Any]) -> Any:
    import torch

    from seqclf.training.task import SequenceTask

    torch.manual_seed(0)
    return SequenceTask(description, {**_settings("tree_lstm"), "hidden_size": 8, "embedding_size": 6}).eval()


def _settings(model: str) -> dict[str, Any]:
    from seqclf.config.command_keys import default_settings

    settings = default_settings("model", model)
    return {key: value for key, value in settings.items() if key not in ("hidden_size", "embedding_size")}


def export_in_child(folder: Path, names: list[str]) -> None:
    """Call `export` in another process, so that this one does not import PyTorch."""
    import multiprocessing

    process = multiprocessing.get_context("spawn").Process(target=export, args=(folder, names))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"the bundles could not be exported to {os.fspath(folder)}")
