"""Trace files: a line `label|shop latitude longitude;shop latitude longitude;…` for each card."""

import pyarrow as pa

from seqclf.extend import ArrowFormat

SCHEMA = pa.schema(
    {"fraud": pa.string(), "shop": pa.list_(pa.string()), "where": pa.list_(pa.list_(pa.float64()))},
)


class Traces(ArrowFormat):
    """Trace files."""

    endings = (".trace",)

    def read(self, path):
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines():
            label, _, text = line.partition("|")
            tokens = [token.split() for token in text.split(";")]
            points = [[float(latitude), float(longitude)] for _, latitude, longitude in tokens]
            rows.append({"fraud": label, "shop": [shop for shop, *_ in tokens], "where": points})
        return pa.Table.from_pylist(rows, SCHEMA)
