"""Files of pretrained word vectors."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seqclf.errors import InputError


def read_vectors(path: str, wanted: Mapping[str, int], key: str) -> tuple[list[str], np.ndarray]:
    """The wanted words of a text file of word vectors (a word and its numbers a line; the line of counts with which
    fastText begins is skipped) and their vectors, (words, D) float32."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{key}={path}: no such file; give a .vec or .txt file of word vectors")
    words: list[str] = []
    rows: list[np.ndarray] = []
    size = None
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            head, _, rest = line.rstrip().partition(b" ")
            if number == 1 and len(rest.split()) == 1:
                continue
            word = head.decode("utf-8", "replace")
            if word not in wanted or (words and word == words[-1]):
                continue
            try:
                row = np.array(rest.split(), np.float32)
            except ValueError:
                raise InputError(f"{file}: line {number}: is no word followed by numbers; mend it") from None
            size = size or len(row)
            if len(row) != size or not np.isfinite(row).all():
                raise InputError(f"{file}: line {number}: has {len(row)} numbers where {size} are expected; mend it")
            words.append(word)
            rows.append(row)
    if not words:
        raise InputError(f"{key}={path}: has a vector of no word of the training texts; check file and lowercase")
    unique = dict(zip(words, rows, strict=True))
    return list(unique), np.stack(list(unique.values()))
