"""Surveys: one of a real dataset with every kind of finding, and synthetic ones of any size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.batching.options import BatchingOptions
from seqclf.config.documentation import CONF
from seqclf.config.options import parse_options
from seqclf.data.prepare import prepare
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.store import SplitCounts
from seqclf.survey.class_counts import ClassCounts
from seqclf.survey.fields import ChannelSpread, FieldStatistics, Flattening
from seqclf.survey.lengths import LengthHistogram, LengthStatistics, PaddingSurvey, TruncationSurvey, summarize_lengths
from seqclf.survey.survey import DatasetSurvey, survey_dataset
from seqclf.survey.target_leakage import ColumnLeakage

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="session")
def surveyed(options: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> DatasetSurvey:
    """Two classes, two fields of which one never changes, repeated sequences and a column that is the label."""
    generator = np.random.default_rng(0)
    rows = 60
    labels = [("bad", "good", "good")[row % 3] for row in range(rows)]
    tokens = [generator.integers(0, 4, size=1 + row % 4 + 9 * (row % 20 == 0)).tolist() for row in range(rows)]
    columns = {
        "tokens": tokens,
        "flat": [[1.0] * len(sequence) for sequence in tokens],
        "outcome": [label == "bad" for label in labels],
        "label": labels,
    }
    path = tmp_path_factory.mktemp("surveyed") / "t.parquet"
    pq.write_table(pa.table(columns), path)
    split = {"validation": 0.2, "test": 0.2}
    fields = {"tokens": "category", "flat": "number"}
    data_options = options(train=path, label="label", positive="bad", fields=fields, split=split)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        batching: Any = OmegaConf.to_container(compose("train").batching)
        batching = parse_options(BatchingOptions, batching)
    return survey_dataset(prepare(data_options), data_options, batching, baseline=True)


def synthetic_lengths(lengths_by_class: dict[str, np.ndarray]) -> LengthStatistics:
    lengths = np.concatenate(list(lengths_by_class.values()))
    edges = np.unique(np.geomspace(lengths.min(), lengths.max() + 1, 41))
    counts = {label: np.histogram(values, edges)[0].tolist() for label, values in lengths_by_class.items()}
    return LengthStatistics(
        all_rows=summarize_lengths(lengths),
        by_class={label: summarize_lengths(values) for label, values in lengths_by_class.items()},
        by_split={split: summarize_lengths(lengths) for split in SPLITS},
        histogram=LengthHistogram(edges.tolist(), counts),
    )


@pytest.fixture
def synthetic() -> Callable[..., DatasetSurvey]:
    """`synthetic(labels, lengths, channels)`: a survey without a baseline, from the lengths of each class."""

    def build(labels: list[str], lengths: list[np.ndarray], channels: list[str] | None = None) -> DatasetSurvey:
        channels = channels or []
        spread = {
            channel: ChannelSpread(
                lowest=-1e6, highest=1e6 + row, between=1e-5, within=3.0, within_p5=0.01, within_p95=400.0
            )
            for row, channel in enumerate(channels)
        }
        lengths_by_class = dict(zip(labels, lengths, strict=True))
        total = sum(map(len, lengths))
        classes = []
        for label, values in lengths_by_class.items():
            rows = {split: max(1, len(values) // (index + 1)) for index, split in enumerate(SPLITS)}
            classes.append(ClassCounts(label, rows, len(values) / total))
        tokens = int(np.concatenate(lengths).sum())
        used = {split: sum(entry.rows[split] for entry in classes) for split in SPLITS}
        leaks = LeakReport(
            rows=total,
            distinct=total - 1,
            seen_before={"validation": 0, "test": 2},
            ids_seen_before=None,
            conflicting_sequences=0,
            conflicting_rows=0,
        )
        field = FieldStatistics(
            kind="number",
            columns=channels,
            describe="",
            constant=False,
            missing=dict.fromkeys(channels, 0.25),
            constant_channels=channels,
            spread=spread,
            flattened=Flattening(share=0.25, by_chance=0.01, sequences=total),
        )
        return DatasetSurvey(
            name="synthetic",
            classes=classes,
            positive=None,
            rows={split: SplitCounts(used=count, tokens=tokens) for split, count in used.items()},
            lengths=synthetic_lengths(lengths_by_class),
            truncation=TruncationSurvey(None, "error", dict.fromkeys(SPLITS, 0), []),
            batches=PaddingSurvey(7, 31.94, 0.876, 0.123),
            fields={"x": field},
            ignored=channels,
            leaks=leaks,
            columns=[ColumnLeakage(name, 0.5, False) for name in channels],
            warnings=[*leaks.warnings(), *(f"class {label} is rare" for label in labels)],
        )

    return build


@pytest.fixture
def broad(synthetic: Callable[..., DatasetSurvey]) -> DatasetSurvey:
    """Hundreds of classes and channels, with long names that look like markup, and lengths from 1 to thousands."""
    generator = np.random.default_rng(0)
    labels = [f"<i>class&{row}</i> $x_{row}$ [bold]" + "名\n" * 200 for row in range(400)]
    lengths = [1 + np.floor(generator.lognormal(3, 1.6, size=1 + 400 // (row + 1))) for row in range(400)]
    return synthetic(labels, lengths, [f"<b onclick='x'>channel{row}</b>" + "y" * 300 for row in range(600)])


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"
