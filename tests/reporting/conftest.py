"""Surveys: one of real data with everything in it, and one made by hand of any size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.config.command import CONF
from seqclf.data.prepare import prepare
from seqclf.data.splitting.leakage import leak_lines
from seqclf.survey.survey import survey_dataset

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="session")
def surveyed(options: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two classes, two fields of which one never changes, repeated sequences and a column that is the label."""
    generator = np.random.default_rng(0)
    rows = 60
    labels = [("bad", "good", "good")[row % 3] for row in range(rows)]
    tokens = [generator.integers(0, 4, size=1 + row % 4 + 9 * (row % 20 == 0)).tolist() for row in range(rows)]
    columns = {
        "tokens": tokens,
        "flat": [[1.0] * len(own) for own in tokens],
        "outcome": [label == "bad" for label in labels],
        "label": labels,
    }
    path = tmp_path_factory.mktemp("surveyed") / "t.parquet"
    pq.write_table(pa.table(columns), path)
    split = {"validation": 0.2, "test": 0.2}
    fields = {"tokens": "category", "flat": "number"}
    chosen = options(train=path, label="label", positive="bad", fields=fields, split=split)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        batching: Any = OmegaConf.to_container(compose("train").batching)
    return survey_dataset(prepare(chosen), chosen, batching, baseline=True)


def summary(lengths: np.ndarray) -> dict[str, float]:
    quantiles = {f"p{q}": float(np.percentile(lengths, q)) for q in (1, 5, 25, 50, 75, 95, 99)}
    spread = {"min": int(lengths.min()), "mean": float(lengths.mean()), **quantiles, "max": int(lengths.max())}
    return {"rows": len(lengths), **spread}


@pytest.fixture
def made() -> Callable[..., dict[str, Any]]:
    """`made(classes, lengths, channels=3)`: a survey without a baseline; `lengths`: by class."""

    def build(labels: list[str], lengths: list[np.ndarray], channels: list[str] | None = None) -> dict[str, Any]:
        everything = np.concatenate(lengths)
        edges = np.unique(np.geomspace(everything.min(), everything.max() + 1, 41))
        by_class = dict(zip(labels, lengths, strict=True))
        used = {split: sum(max(1, len(own) // (place + 1)) for own in lengths) for place, split in enumerate(SPLITS)}
        counts = {"truncated": 0, "tokens": int(everything.sum()), "unknown_tokens": 0, "refused": 0}
        leaks = {"rows": len(everything), "distinct": len(everything) - 1, "ids_seen_before": None, "dropped": {}}
        leaks |= {"seen_before": {"validation": 0, "test": 2}, "conflicting_sequences": 0, "conflicting_rows": 0}
        field = {"kind": "number", "columns": channels or [], "describe": "", "constant": False}
        return {
            "name": "made",
            "positive": None,
            "classes": [
                {"label": label, **{split: max(1, len(own) // (place + 1)) for place, split in enumerate(SPLITS)}}
                | {"share": len(own) / len(everything)}
                for label, own in by_class.items()
            ],
            "rows": {split: {"used": count, **counts} for split, count in used.items()},
            "lengths": {
                "all": summary(everything),
                "by_class": {label: summary(own) for label, own in by_class.items()},
                "by_split": {split: summary(everything) for split in SPLITS},
                "histogram": {
                    "edges": edges.tolist(),
                    "by_class": {label: np.histogram(own, edges)[0].tolist() for label, own in by_class.items()},
                },
            },
            "truncation": {"max_length": None, "truncate": "error", "cut_rows": dict.fromkeys(SPLITS, 0), "if": []},
            "batches": {
                "batches": 7,
                "rows_per_batch": 31.94,
                "padding_efficiency": 0.876,
                "padding_efficiency_static": 0.123,
            },
            "fields": {
                "x": {**field, "missing": dict.fromkeys(channels or [], 0.25), "constant_channels": channels or []}
            },
            "ignored": channels or [],
            "leaks": leaks,
            "columns": [{"column": name, "auroc": 0.5, "revealing": False} for name in channels or []],
            "baseline": None,
            "warnings": [*leak_lines(leaks), *(f"class {label} is rare" for label in labels)],
        }

    return build


@pytest.fixture
def broad(made: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Hundreds of classes and channels, with long names that look like markup, and lengths from 1 to thousands."""
    generator = np.random.default_rng(0)
    labels = [f"<i>class&{row}</i> $x_{row}$ [bold]" + "名\n" * 200 for row in range(400)]
    lengths = [1 + np.floor(generator.lognormal(3, 1.6, size=1 + 400 // (row + 1))) for row in range(400)]
    return made(labels, lengths, [f"<b onclick='x'>channel{row}</b>" + "y" * 300 for row in range(600)])


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"
