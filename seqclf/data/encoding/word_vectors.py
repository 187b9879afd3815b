"""Reader of pretrained word vectors in the text format of fastText and GloVe."""

from __future__ import annotations

import gzip
from collections.abc import Container
from pathlib import Path

import numpy as np

from seqclf.errors import InputError


def read_vectors(path: str, vocabulary: Container[str], key: str) -> tuple[list[str], np.ndarray]:
    """Return the words of a file that are in `vocabulary`, and their vectors, (words, D) float32.

    Each line holds a word and its numbers. The header of fastText, two counts, is skipped. `key` is the config key for
    errors. Raises InputError for a file that is missing, malformed or without any of the words.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{key}={path}", "no such file", "give a .vec or .txt file of word vectors")
    vectors: dict[str, np.ndarray] = {}
    size = previous = None
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            head, _, rest = line.rstrip().partition(b" ")
            if number == 1 and len(rest.split()) == 1:  # the header: numbers of words and of dimensions
                continue
            word = head.decode("utf-8", "replace")
            if word not in vocabulary or word == previous:  # of a word listed twice in a row, the first counts
                continue
            try:
                vector = np.array(rest.split(), np.float32)
            except ValueError:
                raise InputError(f"{file}: line {number}", "is not a word followed by numbers", "fix it") from None
            size = size or len(vector)
            if len(vector) != size or not np.isfinite(vector).all():
                raise InputError(
                    f"{file}: line {number}", f"has {len(vector)} numbers where {size} are expected", "fix it"
                )
            vectors[word] = vector
            previous = word
    if not vectors:
        raise InputError(
            f"{key}={path}", "has no vector for any word of the training texts", "check file and lowercase"
        )
    return list(vectors), np.stack(list(vectors.values()))
