"""The number of the format is raised with every change of what is stored."""

import hashlib
import json

import numpy as np
from support.table_files import LABELS, write_csv

from seqclf.data.prepare_data import prepare
from seqclf.data.storage.store import FORMAT

# Raise FORMAT and replace this digest together. Prepared data of an older version would be read otherwise.
STORED = (4, "edbd6fc589082515")


def test_the_format_is_raised_with_every_change_of_what_is_stored(options, tmp_path):
    """Tables with the common kinds of field. Sums of their numbers are exact in any order."""
    columns = {
        "code": [[1 + row % 5, 2] for row in range(20)],
        "level": [[0.0, 1.0] for row in range(20)],
        "at": [["2024-01-01 00:00:00", f"2024-01-{2 + row % 2:02} 00:00:00"] for row in range(20)],
        "label": LABELS,
    }
    texts = {"text": ["one two", "two three"] * 10, "label": LABELS}
    stored = []
    events = {"code": "category", "level": "number", "at": "time"}
    for table, fields in ((columns, events), (texts, {"text": "text"})):
        path = write_csv(tmp_path / "table.csv", table)
        dataset = prepare(options(train=path, label="label", fields=fields, cache_dir=tmp_path / "cache"))
        stored.append([values(dataset), files(dataset.folder)])
    digest = hashlib.sha256(json.dumps(stored).encode()).hexdigest()[:16]
    assert (FORMAT, digest) == STORED, "raise FORMAT and replace STORED"


def values(dataset):
    """Values of the training rows. They are rounded, because logarithms differ between processors in the last digit."""
    fields = dataset.splits["train"].sequences.fields
    return {name: (np.round(tokens.astype(np.float64), 3) + 0.0).tolist() for name, tokens in fields.items()}


def files(folder):
    """Names of the files, the formats of the arrays and the keys of the description."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    formats = {name: json.loads((folder / name).read_text()) for name in names if name.endswith("split.json")}
    return [names, formats, sorted(json.loads((folder / "dataset.json").read_text()))]
