"""Example rows: a few training sequences of each class as readable text."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from seqclf.data.encoding.encoders import decode
from seqclf.data.storage.dataset import Dataset
from seqclf.survey.largest_classes import largest_classes
from seqclf.system.json_result import JsonResult

ROWS_PER_CLASS = 3
USUAL_ROWS, MOST_ROWS = 9, 20  # over all classes; of many classes, one row each
MOST_TOKENS = 60  # of a row, the first and the last ones


@dataclass(frozen=True)
class ExampleRow(JsonResult):
    """A training row. `length`: tokens before truncation. `text`: its tokens, of a long row the first and last."""

    label: str
    id: str
    length: int
    text: str


def example_rows(dataset: Dataset) -> list[ExampleRow]:
    """Draw rows of the largest classes, and of the positive one, at random: the same ones in every survey.

    Reads only the rows that it returns.
    """
    split = dataset.splits["train"]
    codes = largest_classes(dataset, MOST_ROWS)
    per_class = max(1, min(ROWS_PER_CLASS, USUAL_ROWS // max(1, len(codes))))
    generator = np.random.default_rng(0)
    lengths = split.lengths_before_truncation
    examples = []
    for code in codes:
        rows = np.flatnonzero(split.labels == code)
        for row in np.sort(generator.choice(rows, min(per_class, len(rows)), replace=False)).tolist():
            start, stop = split.sequences.offsets[row], split.sequences.offsets[row + 1]
            tokens = {name: values[start:stop] for name, values in split.sequences.fields.items()}
            text = readable(decode(dataset.encoders, tokens, MOST_TOKENS))
            examples.append(ExampleRow(dataset.classes[code], str(split.ids[row]), int(lengths[row]), text))
    return examples


def readable(text: str) -> str:
    """Join words and punctuation as people write them.

    >>> readable("it ' s a good film ( really ) , i think .")
    "it's a good film (really), i think."
    """
    text = re.sub(r" ([,.;:!?)\]])", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    return re.sub(r"(\w) ' (s|t|d|m|re|ve|ll)\b", r"\1'\2", text)
