"""A survey of a real dataset with every kind of finding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.prepare_data import prepare
from seqclf.survey.survey import DatasetSurvey, survey_dataset


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
    return survey_dataset(prepare(data_options), data_options, baseline=True)
