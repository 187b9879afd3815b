"""One network gives one file, byte for byte, whatever its process did before and however it hashes."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from models.export_digests import KINDS, digests

TESTS = Path(__file__).parents[1]


def start(seed, folder, *kinds):
    """Start a process that exports networks in turn. Return a function that waits for the digests by kind."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": str(seed % 2 + 1)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    command = [sys.executable, "-W", "ignore", "-m", "models.export_digests", str(folder), *kinds]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)

    def wait():
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0
        return [line.split() for line in output.splitlines()]

    return wait


@pytest.fixture(scope="module")
def lstm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lstm")
    return folder, digests("lstm", folder)


def test_exports_in_one_process_are_equal(lstm, tmp_path):
    assert digests("lstm", tmp_path) == lstm[1]


@pytest.mark.slow
def test_exports_of_a_network_and_its_step_in_one_process_are_equal(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    assert digests("adaptive", tmp_path / "first") == digests("adaptive", tmp_path / "second")


@pytest.mark.slow
def test_exports_of_processes_with_other_hashes_are_equal(tmp_path):
    # Of these two seeds each puts the states and the cells of a set in another order.
    first, second = [start(seed, tmp_path / str(seed), "tree_lstm") for seed in (0, 1)]
    assert first() == second()


@pytest.mark.soak
def test_fifty_processes_export_equal_files(tmp_path):
    results = {}
    for seed in range(50):
        before = KINDS[seed % len(KINDS)]
        kinds = [before] * (seed % 3) + list(itertools.islice(itertools.cycle(KINDS), seed % 5, seed % 5 + len(KINDS)))
        for kind, *found in start(seed, tmp_path / str(seed), *kinds)():
            assert results.setdefault(kind, found) == found, f"{kind} with the hash seed {seed}"
    assert set(results) == set(KINDS)


def test_a_file_holds_nothing_of_the_process_that_wrote_it(lstm):
    """No paths of its installation, which are private, and no lines of the source."""
    content = (lstm[0] / "model.onnx").read_bytes()
    assert not [word for word in (b".py", b"eval_with_key", b"site-packages", b"stack_trace") if word in content]


def test_weights_keep_their_names(lstm):
    graph = onnx.load(lstm[0] / "model.onnx").graph
    names = {initializer.name for initializer in graph.initializer}
    assert {f"/classifier.{name}" for name in ("norm.weight", "output.weight", "encoder.layers.0.bias")} <= names
    inner = [name for node in graph.node for name in node.output if name not in ("logits", "embedding")]
    assert all(name.startswith("/") for name in [*inner, *names])
    assert len({*inner, *names}) == len(inner) + len(names)
