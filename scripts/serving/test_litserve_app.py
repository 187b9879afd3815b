"""The LitServe example: its answers are the predictions of the bundle, and requests that come together share a call."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.untrained_task import export_table

SCRIPT = Path(__file__).with_name("litserve_app.py")
# A server that prints the number of rows of each call.
COUNTING = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import litserve_app

class Counting(litserve_app.RowApi):
    def predict(self, rows):
        print("rows", len(rows), flush=True)
        return super().predict(rows)

if __name__ == "__main__":
    litserve_app.main(Counting)
"""


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    generator = np.random.default_rng(0)
    tokens = [generator.integers(1, 9, length).tolist() for length in generator.integers(1, 9, 40)]
    return export_table(tmp_path_factory.mktemp("served"), {"tokens": tokens, "label": ["x", "y"] * 20})


def rows_of_lengths(lengths):
    generator = np.random.default_rng(1)
    return [{"tokens": generator.integers(1, 12, length).tolist()} for length in lengths]


def without_rounding(prediction):
    rounded = {label: round(value, 5) for label, value in (prediction["probabilities"] or {}).items()}
    return prediction["prediction"], prediction["error"], rounded


def test_a_batch_of_rows_has_the_prediction_or_the_error_of_each_row(classifier):
    spec = importlib.util.spec_from_file_location("litserve_app", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    api = module.RowApi(str(classifier.folder))
    api.setup("cpu")
    rows = [*rows_of_lengths([3, 50, 1, 7]), {"tokens": []}, {"other": [1]}, 5, None, [1, 2], "1 2", {}]
    alone = [api.predict([row])[0] for row in rows]
    assert list(map(without_rounding, api.predict(rows))) == list(map(without_rounding, alone))
    assert all(row["error"] for row in api.predict([{"tokens": []}, {"other": [1]}])), "of two clients"
    assert [row["error"] is None for row in alone] == [True] * 4 + [False] * 4 + [True, False, False]
    assert json.loads(json.dumps(alone)) == alone


@pytest.fixture
def server(classifier, tmp_path):
    """The URL of a server with one worker, and the file of its output."""
    pytest.importorskip("litserve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "counting.py").write_text(COUNTING)
    command = [sys.executable, "counting.py", str(classifier.folder), "--port", str(port)]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not is_healthy(url):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
            time.sleep(0.2)
        yield url, tmp_path / "output"
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs([psutil.Process(process.pid), *children], timeout=30)
        assert children and not alive, (tmp_path / "output").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_healthy(url):
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_clients_that_ask_at_the_same_time_share_a_call(classifier, server):
    url, output = server
    rows = [*rows_of_lengths(np.tile([1, 60, 4, 17], 16)), {"tokens": []}, {"other": [1]}]

    def ask(row):
        body, header = json.dumps(row).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/predict", body, header), timeout=30) as answer:
            return json.load(answer)

    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(ask, rows))
    assert list(map(without_rounding, found)) == list(map(without_rounding, classifier.predict(rows)))
    calls = [int(line.split()[1]) for line in output.read_text().splitlines() if line.startswith("rows ")]
    assert sum(calls) == len(rows) and max(calls) > 1 and len(calls) < len(rows) / 2, calls
