"""Serve a bundle over HTTP by LitServe, which gathers the rows of several clients to one call of `Classifier.predict`.

    pip install litserve
    python scripts/serving/litserve_app.py BUNDLE [--port 8000] [--workers 1] [--device cpu]
    curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"tokens": [7, 1, 9, 8]}'

A request is one row, as `Classifier.predict` takes it. Its answer is the prediction, or the error of this row alone.
Rows that arrive within `BATCH_TIMEOUT_S` share a call. `Classifier.predict` groups the rows of a call by length, so
that short rows are not padded to the longest row.
"""

from __future__ import annotations

import argparse
import signal
from typing import Any

from seqclf import Classifier

try:
    from litserve import LitAPI, LitServer
except ModuleNotFoundError:  # the methods below need no server, and are tested without one
    LitAPI, LitServer = object, None

MAX_BATCH_ROWS, BATCH_TIMEOUT_S = 256, 0.005


class RowApi(LitAPI):
    """Predicts the rows of a batch. LitServe copies the object to each worker process, and calls `setup` there."""

    def __init__(self, bundle: str, **settings: Any):
        super().__init__(**settings)
        self.bundle = bundle

    def setup(self, device: str) -> None:
        self.classifier = Classifier(self.bundle, device=device.partition(":")[0])  # LitServe writes cuda:0

    def predict(self, rows: list[Any]) -> list[Any]:
        """Return the prediction or the error of each row."""
        # `predict` raises if all rows are rejected, and these may be the rows of several clients.
        return list(self.classifier.predict_rows(rows))


def main(api_class: type[RowApi] = RowApi) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    if LitServer is None:
        parser.error("litserve is not installed: pip install litserve")
    api = api_class(options.bundle, max_batch_size=MAX_BATCH_ROWS, batch_timeout=BATCH_TIMEOUT_S)
    server = LitServer(api, accelerator=options.device, devices=1, workers_per_device=options.workers)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else SIGTERM leaves the worker processes behind
    server.run(host=options.host, port=options.port, generate_client_file=False)


if __name__ == "__main__":
    main()
