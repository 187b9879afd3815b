"""Bundles for several kinds of sequences. Their weights are random, as no property of a bundle depends on training."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.torchlib_registry import share_registry
from support.untrained_task import data_options, make_task

from seqclf.bundle.runtime import Classifier
from seqclf.config.command_keys import default_settings
from seqclf.data.prepare_data import prepare
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.decision import RULES
from seqclf.runs.bundle_export import write_bundle
from seqclf.training.task import SequenceTask

ROWS = 40
METRICS = {"test": {"recall": 0.5}}
EVIDENCE = {"confidence": 0.95, "backed": False, "statement": "average", "rows": 20, "needed": 90, "conflict": False}
DECISION = {
    "rule": "threshold",
    "positive": "k1",
    "threshold": 0.4,
    "offsets": [-0.4, 0.0],
    "temperature": 1.5,
    "positive_index": 1,
    "targets": [{"rule": rule, "label": "k1", "target": 0.8, **EVIDENCE} for rule in RULES],
}


share_registry()


TREES = {
    "treebank": [
        "(pos (neg not) (pos (neg bad) (pos film)))",
        "(neg (pos good) (neg ending))",
        "pos",
        "(neg (2 (pos a) (neg b)) (pos c) (neg d))",
    ],
    "expressions": ["[MAX 2 [MIN 4 7 1 ] 5 ]", "[MIN 3 ((4) (8) (6)) ]", "7", "[MAX [MAX 1 2 ] 3 ]"],
}


class ExportedTrees(NamedTuple):
    dataset: Dataset
    task: SequenceTask
    classifier: Classifier


class ExportedBundle(NamedTuple):
    folder: Path
    task: SequenceTask
    sequences: list[Any]


def sequences_of(kind: str) -> list[Any]:
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 12, ROWS)
    if kind in ("events", "alerts"):
        return [generator.integers(1, 9, length).tolist() for length in lengths]
    if kind == "text":
        words = np.array(["green", "house", "walks", "under", "rain", "!"])
        return [" ".join(generator.choice(words, length)) for length in lengths]
    if kind == "position":
        return [generator.standard_normal((length, 2)).tolist() for length in lengths]
    if kind == "visits":
        codes = np.array(["I10", "E11", "Z99", "0389"])
        return [
            [generator.choice(codes, generator.integers(0, 4)).tolist() for _ in range(length)] for length in lengths
        ]
    return [
        {
            "shop": generator.choice(["food", "fuel", "fun"], length).tolist(),
            "amount": generator.lognormal(size=length).tolist(),
        }
        for length in lengths
    ]


def row_of(kind: str, sequence: Any) -> dict[str, Any]:
    """Columns of a sequence. A field is named like its kind, except those of "card", which is a mapping already."""
    return sequence if kind == "card" else {kind: sequence}


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Callable[[str], ExportedBundle]:
    """Function that returns the bundle of a kind of sequences, exported once per session.

    Kinds: "events" (integers), "text", "position" (vectors of two numbers), "visits" (sets of texts),
    "card" (two fields), and "alerts" (events
    of two classes, with a decision that has a threshold and a target of every rule).
    """
    bundles: dict[str, ExportedBundle] = {}

    def export(kind: str) -> ExportedBundle:
        if kind not in bundles:
            work = tmp_path_factory.mktemp(kind)
            sequences = sequences_of(kind)
            classes = 2 if kind == "alerts" else 3
            rows = [{**row_of(kind, entry), "label": f"k{row % classes}"} for row, entry in enumerate(sequences)]
            (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            limit = {"max_length": 8, "truncate": "keep_last"} if kind == "text" else {"max_length": 20}
            dataset = prepare(data_options(work / "cache", train=str(work / "train.jsonl"), **limit))
            bundles[kind] = ExportedBundle(work / "bundle", make_task(dataset.description()), sequences)
            decision = {"decision": DECISION} if kind == "alerts" else {}
            write_bundle(bundles[kind].task, bundles[kind].folder, {**METRICS, **decision})
        return bundles[kind]

    return export


@pytest.fixture(scope="session")
def trees(tmp_path_factory) -> Callable[[str], ExportedTrees]:
    """Function that returns the bundle of a form of `TREES`, exported once per session.

    Inner nodes of a "treebank" have no word. Those of "expressions" have one, and two children (`binarize`).
    """
    bundles: dict[str, ExportedTrees] = {}

    def export(form: str) -> ExportedTrees:
        if form not in bundles:
            folder = tmp_path_factory.mktemp(form)
            rows = {"tree": TREES[form] * 6, "label": ["pos", "neg", "pos", "neg"] * 6}
            pq.write_table(pa.table(rows), folder / "train.parquet")
            options = {"tags": "tokens", "binarize": True} if form == "expressions" else {}
            fields = {"tree": {"kind": "tree", **options}}
            dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), fields=fields))
            model = default_settings("model", "tree_lstm")
            composition = "binary" if form == "expressions" else "child_sum"
            model |= {"hidden_size": 8, "embedding_size": 6, "composition": composition}
            torch.manual_seed(0)
            task = SequenceTask(dataset.description(), model).eval()
            write_bundle(task, folder / "bundle", {})
            bundles[form] = ExportedTrees(dataset, task, Classifier(folder / "bundle", device="cpu", threads=1))
        return bundles[form]

    return export


@pytest.fixture
def copy_bundle(exported, tmp_path) -> Callable[[str], Path]:
    def copy(kind: str) -> Path:
        return Path(shutil.copytree(exported(kind).folder, tmp_path / kind))

    return copy


@pytest.fixture(scope="session")
def classifier(exported) -> Callable[[str], Classifier]:
    classifiers: dict[str, Classifier] = {}

    def load(kind: str) -> Classifier:
        if kind not in classifiers:
            classifiers[kind] = Classifier(exported(kind).folder, device="cpu", threads=1)
        return classifiers[kind]

    return load
