"""Bundles of several kinds of sequences, of random weights: what a bundle must do does not depend on training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml

from seqclf.bundle.runtime import Classifier
from seqclf.config.command import CONF
from seqclf.data.prepare import DataOptions, prepare
from seqclf.evaluation.decision import RULES
from seqclf.export_bundle import write_bundle
from seqclf.training.module import SequenceTask

ROWS = 40
METRICS = {"test": {"recall": 0.5}}
EVIDENCE = {"confidence": 0.95, "backed": False, "rows": 20, "needed": 90, "conflict": False}
DECISION = {
    "rule": "threshold",
    "positive": "k1",
    "threshold": 0.4,
    "offsets": [-0.4, 0.0],
    "temperature": 1.5,
    "positive_index": 1,
    "targets": [{"rule": rule, "label": "k1", "target": 0.8, **EVIDENCE} for rule in RULES],
}


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Packed(NamedTuple):
    """A bundle, the task it was made of, and the sequences both were fit on."""

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
    if kind == "place":
        return [generator.standard_normal((length, 2)).tolist() for length in lengths]
    return [
        {
            "shop": generator.choice(["food", "fuel", "fun"], length).tolist(),
            "amount": generator.lognormal(size=length).tolist(),
        }
        for length in lengths
    ]


def row_of(kind: str, sequence: Any) -> dict[str, Any]:
    return sequence if kind == "card" else {kind: sequence}


def data_options(cache: Path, **overrides: Any) -> DataOptions:
    defaults = yaml.safe_load((CONF / "data" / "files.yaml").read_text(encoding="utf-8"))
    return DataOptions.build(**{**defaults, "cache_dir": str(cache), "label": "label", **overrides})


@pytest.fixture(scope="session")
def packed(tmp_path_factory) -> Callable[..., Packed]:
    """`packed("events")`, `packed("text")`, `packed("place")` (vectors), `packed("card")` (two fields),
    `packed("alerts")` (events of two classes, with a threshold and promises of each kind); made once."""
    made: dict[str, Packed] = {}

    def make(kind: str) -> Packed:
        if kind not in made:
            work = tmp_path_factory.mktemp(kind)
            sequences = sequences_of(kind)
            classes = 2 if kind == "alerts" else 3
            lines = [{**row_of(kind, entry), "label": f"k{row % classes}"} for row, entry in enumerate(sequences)]
            (work / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            limit = {"max_length": 8, "truncate": "keep_last"} if kind == "text" else {"max_length": 20}
            dataset = prepare(data_options(work / "cache", train=str(work / "train.jsonl"), **limit))
            made[kind] = Packed(work / "bundle", make_task(dataset.description()), sequences)
            decided = {"decision": DECISION} if kind == "alerts" else {}
            write_bundle(made[kind].task, made[kind].folder, {**METRICS, **decided})
        return made[kind]

    return make


def make_task(description: dict[str, Any]) -> SequenceTask:
    torch.manual_seed(0)
    model = yaml.safe_load((CONF / "model" / "lstm.yaml").read_text(encoding="utf-8"))
    loss = yaml.safe_load((CONF / "loss" / "cross_entropy.yaml").read_text(encoding="utf-8"))
    optimizer = yaml.safe_load((CONF / "optimizer" / "adamw.yaml").read_text(encoding="utf-8"))
    small = {"hidden_size": 8, "embedding_size": 6}
    return SequenceTask(description, {**model, **small}, loss, optimizer, "recall", 0).eval()


@pytest.fixture(scope="session")
def classifier(packed) -> Callable[[str], Classifier]:
    made: dict[str, Classifier] = {}

    def make(kind: str) -> Classifier:
        if kind not in made:
            made[kind] = Classifier(packed(kind).folder, device="cpu", threads=1)
        return made[kind]

    return make
