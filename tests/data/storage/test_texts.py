"""Original texts of evaluation rows in the dataset."""

import json

import numpy as np
import pytest
from support.untrained_task import data_options

from seqclf.data.prepare_data import prepare
from seqclf.data.storage.store import TEXTS, subset

TEXTS_OF_ROWS = [f"  Row\t{row}:  THE\n\n{'x' * (row % 5)} “end” {row % 3}. " for row in range(60)]


def write_rows(path, rows):
    lines = [{"text": TEXTS_OF_ROWS[row], "label": "ab"[row % 2], "number": f"row {row}"} for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def prepared(tmp_path, tokenizer, **options):
    fields = {"text": {"kind": "text", "tokenizer": tokenizer}}
    return prepare(data_options(tmp_path / "cache", id="number", fields=fields, **options))


def row_of(id):
    return int(id.as_py().removeprefix("row "))


@pytest.mark.parametrize("tokenizer", ["word", "character", "bpe"])
def test_evaluation_rows_keep_their_text_to_the_letter(tmp_path, tokenizer):
    """Also where `max_length` cuts their tokens, and where validation is a part of the training file."""
    train, test = write_rows(tmp_path / "a.jsonl", range(40)), write_rows(tmp_path / "b.jsonl", range(40, 60))
    options = {"max_length": 3, "truncate": "keep_last"}
    dataset = prepared(tmp_path, tokenizer, train=train, test=test, **options)
    for name in ("validation", "test"):
        split = dataset.splits[name]
        assert len(split.ids) and split.sequences.lengths.max() == 3
        for position, id in enumerate(split.ids):
            assert split.texts.of_row(position) == {"text": TEXTS_OF_ROWS[row_of(id)]}


def test_some_rows_of_a_split_keep_their_texts(tmp_path):
    dataset = prepared(tmp_path, "word", train=write_rows(tmp_path / "a.jsonl", range(60)))
    part = subset(dataset.splits["validation"], np.array([5, 0, 3]))
    last = subset(part, np.array([2]))
    for split in (part, last):
        shown = [split.texts.of_row(position)["text"] for position in range(len(split.ids))]
        assert shown == [TEXTS_OF_ROWS[row_of(id)] for id in split.ids]


def test_training_rows_and_sequences_without_text_have_none(tmp_path):
    train, test = write_rows(tmp_path / "a.jsonl", range(40)), write_rows(tmp_path / "b.jsonl", range(40, 60))
    dataset = prepared(tmp_path, "word", train=train, validation=test, test=test)
    assert dataset.splits["train"].texts is None and not (dataset.folder / "train" / TEXTS).exists()
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps({"e": [1, 2, row % 7], "label": "ab"[row % 2]}) + "\n" for row in range(40)))
    events = prepare(data_options(tmp_path / "cache", train=str(path)))
    assert events.splits["validation"].texts is None
    assert not list(events.folder.rglob(TEXTS))
