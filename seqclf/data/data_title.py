"""Title of a data set on pages."""

from __future__ import annotations

import re
from pathlib import Path

UNNAMED = "files"  # data.name of conf/data/files.yaml


def data_title(name: str, train: str | None) -> str:
    """Return the name of the data, or that of the training file where the name is the default one of `data=files`.

    >>> data_title("files", "data/cards.csv.gz"), data_title("fraud", "cards.csv")
    ('cards', 'fraud')
    """
    if name != UNNAMED or train is None:
        return name
    # A query is no path, and a pattern has no name of its own.
    stem = Path(train).name.split(".")[0] if len(train.splitlines()) == 1 else ""
    return stem if re.fullmatch(r"[\w -]+", stem) else UNNAMED
