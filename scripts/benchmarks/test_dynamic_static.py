"""dynamic_static.py: all modes run the same steps on the same sequences; they learn the same and differ in time."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parent / "dynamic_static.py"
sys.path.append(str(SCRIPT.parent))

import dynamic_static as bench  # noqa: E402
import generated  # noqa: E402

from seqclf import load_config  # noqa: E402


def contender(*overrides, mode="dynamic"):
    model = bench.model_without_noise(load_config([*overrides, "model.hidden_size=8"])["model"])
    return bench.Contender(model, 1e-2, "cpu", "32-true", 0, mode)


def timed(workload, modes, *overrides):
    return bench.time_modes({mode: contender(*overrides, mode=mode) for mode in modes}, workload, rounds=2)


@pytest.fixture(scope="module")
def workload():
    return generated.generate_workload(lambda generator, rows: generator.integers(1, 31, rows), 200, 8, 6, seed=2)


@pytest.mark.parametrize("name", ["lstm", "adaptive", "transformer"])
def test_every_mode_learns_the_same(workload, name):
    figures, errors = timed(workload, ["dynamic", "packed", "static"], f"model={name}")
    assert list(errors) == (["packed"] if name == "transformer" else [])
    losses = [of_mode["loss"] for of_mode in figures.values()]
    assert max(losses) - min(losses) < 1e-4 and figures["static"]["of_static"] == 1
    lengths = workload.split.sequences.lengths
    assert figures["static"]["padding"] == pytest.approx(1 - workload.tokens / (48 * lengths.max()))
    assert figures["dynamic"]["padding"] < 0.5 * figures["static"]["padding"]


def test_static_batches_are_all_as_long_as_the_longest_sequence(workload):
    for mode, number in (("static", 1), ("dynamic", 6)):
        trainer = bench.ModeTrainer(contender("model=lstm", mode=mode), workload)
        widths = {trainer.collate(rows)[0]["token"].shape[1] for rows in workload.batches}
        assert len(widths) == number and max(widths) <= workload.split.sequences.lengths.max() == 30


def test_rounds_start_from_the_same_weights(workload):
    trainer = bench.ModeTrainer(contender("model=lstm"), workload)
    initial = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.step(workload.batches[0])
    assert any(not torch.equal(initial[name], weight) for name, weight in trainer.model.state_dict().items())
    trainer.reset()
    assert all(torch.equal(initial[name], weight) for name, weight in trainer.model.state_dict().items())


def test_a_mode_that_cannot_run_is_reported_and_the_others_run(workload, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\non this machine")

    monkeypatch.setattr(torch, "compile", broken)
    figures, errors = timed(workload, ["compiled", "static"], "model=lstm")
    assert errors == {"compiled": "RuntimeError: no compiler"} and figures["static"]["tokens_per_s"] > 0


@pytest.mark.parametrize("name", generated.LENGTH_DISTRIBUTIONS)
def test_batches_are_full_and_each_sequence_has_the_token_of_its_class_once(name):
    workload = generated.generate_workload(name, 300, 16, 9, seed=1)
    sequences, labels = workload.split.sequences, workload.split.labels
    assert [len(rows) for rows in workload.batches] == [16] * 9
    assert sequences.lengths[workload.longest_batch].max() == sequences.lengths.max()
    is_class = np.isin(sequences.fields["token"], generated.CLASS_TOKENS)
    assert (np.add.reduceat(is_class, sequences.offsets[:-1]) == 1).all()
    assert (sequences.fields["token"][is_class] == np.array(generated.CLASS_TOKENS)[labels]).all()


@pytest.mark.slow
def test_a_quick_run_prints_all_figures():
    command = [sys.executable, SCRIPT, "--quick", "--modes", "dynamic", "static"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = json.loads(lines[-1])["figures"]
    assert [(row["lengths"], row["mode"]) for row in rows] == [("log_normal", "dynamic"), ("log_normal", "static")]
    assert len(lines) == 5 and all(row["memory_mb"] > 50 and row["loss"] < 1 for row in rows)
