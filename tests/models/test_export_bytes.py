"""One network gives one file, byte for byte, whatever its process did before and however it hashes."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from models.export_digests import KINDS, digests, network

from seqclf.models.onnx.export import export_onnx

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
def adaptive(tmp_path_factory):
    """A folder with an adaptive network and its step, exported once, and the digests of the two files."""
    folder = tmp_path_factory.mktemp("adaptive")
    return folder, digests("adaptive", folder)


def test_exports_in_one_process_are_equal(adaptive, tmp_path):
    _, first = adaptive  # the step is another export in between
    assert digests("adaptive", tmp_path) == first


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


def test_a_file_holds_nothing_of_the_process_that_wrote_it(adaptive):
    """No paths of its installation, which are private, and no lines of the source."""
    folder, _ = adaptive
    content = (folder / "model.onnx").read_bytes()
    assert not [word for word in (b".py", b"eval_with_key", b"site-packages", b"stack_trace") if word in content]


def test_weights_keep_their_names(tmp_path):
    model, fields = network("lstm")
    export_onnx(model, fields, tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    names = {initializer.name for initializer in graph.initializer}
    assert {f"/classifier.{name}" for name in ("norm.weight", "output.weight", "encoder.layers.0.bias")} <= names
    inner = [name for node in graph.node for name in node.output if name != "logits"]
    assert all(name.startswith("/") for name in [*inner, *names])
    assert len({*inner, *names}) == len(inner) + len(names)
