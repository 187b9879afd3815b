"""Small valid files of every supported format and their contents, from which the fuzzer starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from fuzzing.files import Base, Columns

ROWS = 24
NUMBER = {"kind": "number", "scale": "none"}
BYTES = {"kind": "text", "tokenizer": "byte", "lowercase": False}
EVENTS = {"group_by": "id", "order_by": "time", "fields": {"amount": NUMBER, "code": "category", "time": "time"}}


@cache
def bases() -> dict[str, Base]:
    """Return every base file by name."""
    random = np.random.default_rng(2024)
    keys = [f"k{value:07x}" for value in random.permutation(1 << 24)[:ROWS].tolist()]
    label = [("label", ["a", "b"] * (ROWS // 2))]
    words = [f"w{value}" for value in range(9)]

    def column(draw: Callable[[], Any]) -> list[list[Any]]:
        return [[draw() for _ in range(1 + row % 4)] for row in range(ROWS)]

    def number() -> float:
        return float(random.integers(-400, 400)) / 8

    counts = column(lambda: int(random.integers(1, 12)))
    # Integers from 2^53 on are not exact as floats.
    large = column(lambda: int(2**53 + random.integers(0, 9)))
    vectors = column(lambda: [number(), number()])
    strings = column(lambda: words[random.integers(9)])
    series = [[[float(row), number()], *cell] for row, cell in enumerate(vectors)]
    texts = [f"{key} the {' '.join(cell)} said" for key, cell in zip(keys, strings, strict=True)]
    quoted = [f'{text}, "so" it\n said' for text in texts]
    trees = [f"(3 (2 {key}) (1 {' '.join(cell)}))" for key, cell in zip(keys, strings, strict=True)]
    events = _events(random, keys)
    labels = dict(zip(keys, label[0][1], strict=True))
    labelled_events = [*events, ("label", [labels[key] for key in events[0][1]])]

    def table(cells: list[Any]) -> Columns:
        return [("id", keys), ("tokens", cells), *label]

    accents, inches = [f"{text} né" for text in texts], [f'"{text} 5" wide' for text in texts]
    category, text = {"fields": {"tokens": "category"}}, {"fields": {"tokens": BYTES}}
    numbers, plain_text = {"fields": {"tokens": NUMBER}}, {"fields": {"text": BYTES}}
    timed, series_field = {"fields": {"tokens": "category", "when": "time"}}, {"fields": {"series": NUMBER}}
    times = [[1000 * row + 7 * token for token in range(len(cell))] for row, cell in enumerate(counts)]
    channels = [
        ("tokens", [[token[0] for token in c] for c in vectors]),
        ("y", [[token[1] for token in c] for c in vectors]),
    ]
    many = {"fields": {"tokens": {**NUMBER, "columns": ["tokens", "y"]}}}
    classes = [("text", texts), *label]
    all_bases = [
        Base("csv", "t.csv", "separated", table(counts), category),
        Base("csv strings", "t.csv", "separated", table(strings), category),
        Base("csv vectors", "t.csv", "separated", table(vectors), numbers),
        Base("csv channels", "t.csv", "separated", [("id", keys), *channels, *label], many),
        Base("csv times", "t.csv", "separated", [*table(counts), ("when", times)], timed),
        Base("csv separator", "t.csv", "separated", table(counts), {**category, "list_separator": " "}, separator=" "),
        Base("csv quoted", "t.csv", "separated", table(quoted), text),
        Base("csv events", "t.csv", "separated", labelled_events, EVENTS, main="amount"),
        Base("csv labels", "t.csv", "separated", events, EVENTS, main="amount", labels=labels),
        Base("csv tree", "t.csv", "separated", table(trees), {"fields": {"tokens": "tree"}}),
        Base("csv parts", "part*.csv", "parts", table(counts), category),
        *(
            Base(f"csv {code}", "t.csv", "separated", table(accents), {**text, "encoding": code}, encoding=code)
            for code in ("latin-1", "utf-16")
        ),
        Base("csv.gz", "t.csv.gz", "separated", table(counts), category),
        Base("tsv unquoted", "t.tsv", "separated", table(inches), {**text, "quote": ""}, delimiter="\t", quote=""),
        Base("txt", "t.txt", "separated", table(texts), text, delimiter="\t"),
        Base("jsonl", "t.jsonl", "json", table(counts), category),
        Base("jsonl large", "t.jsonl", "json", table(large), category),
        Base("jsonl vectors", "t.jsonl.gz", "json", table(vectors), numbers),
        Base("jsonl events", "t.jsonl", "json", labelled_events, EVENTS, main="amount"),
        Base("parquet", "t.parquet", "columnar", table(counts), category),
        Base("parquet vectors", "t.parquet", "columnar", table(vectors), numbers),
        Base("parquet events", "t.parquet", "columnar", labelled_events, EVENTS, main="amount"),
        Base("arrow", "t.arrow", "columnar", table(strings), category),
        Base("arrow events", "t.arrow", "columnar", labelled_events, EVENTS, main="amount"),
        Base("ts", "t.ts", "series", [("series", series), *label], series_field, key="", main="series"),
        Base("class lines", "folder", "class lines", classes, plain_text, key="", main="text"),
        Base("class texts", "folder", "class texts", classes, plain_text, key="", main="text"),
    ]  # fmt: skip
    return {base.kind: base for base in all_bases}


def _events(random: np.random.Generator, keys: list[str]) -> Columns:
    """Return one to four events of each key, shuffled. Amounts are distinct, so that each identifies its event."""
    rows = [(key, 60 * event + row) for row, key in enumerate(keys) for event in range(1 + row % 4)]
    rows = [rows[index] for index in random.permutation(len(rows))]
    codes = [f"c{value}" for value in random.integers(0, 5, len(rows))]
    amounts = [value / 8 for value in range(1, len(rows) + 1)]
    return [("id", [key for key, _ in rows]), ("time", [t for _, t in rows]), ("code", codes), ("amount", amounts)]
