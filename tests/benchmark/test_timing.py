"""The same updates in every mode: same numbers, other times; and what is made of them."""

import numpy as np
import pytest
import torch

from seqclf.benchmark.changing_structure import structure_test
from seqclf.benchmark.modes import MODES, Contender, Settings
from seqclf.benchmark.rating import verdict
from seqclf.benchmark.timing import race
from seqclf.benchmark.workload import generated

MODEL = {
    "cell": "lstm",
    "embedding_size": 6,
    "hidden_size": 8,
    "layers": 1,
    "bidirectional": True,
    "pooling": "max",
    "dropout": 0.0,
    "variational": False,
    "token_dropout": 0.0,
    "number_noise": 0.0,
}
SETTINGS = Settings(MODEL, 1e-2, "cpu", "32-true", 0)


@pytest.fixture(scope="module")
def workload():
    return generated("uniform", 200, 8, 6, seed=2)


@pytest.fixture(scope="module")
def raced(workload):
    return race(workload, ["dynamic", "packed", "static"], 3, SETTINGS)


def test_every_mode_learns_the_same(raced):
    losses = [own["loss"] for own in raced.values()]
    assert max(losses) - min(losses) < 1e-4
    assert len({round(own["recall"], 6) for own in raced.values()}) == 1


def test_figures_are_of_all_updates(raced, workload):
    lengths = workload.split.sequences.lengths
    steps = int(lengths[np.concatenate(workload.updates)].sum())
    for own in raced.values():
        seconds = np.median(own["seconds"])
        assert len(own["seconds"]) == 3 and own["tokens_per_s"] == pytest.approx(steps / seconds)
        assert own["step_ms_mean"] == pytest.approx(1e3 * seconds / 6, rel=1e-6)
        assert own["step_ms"] <= own["step_ms_p95"]
    assert raced["static"]["time_ratio"] == 1.0
    assert raced["static"]["padding_efficiency"] == pytest.approx(steps / (48 * lengths.max()))
    assert raced["dynamic"]["padding_efficiency"] > 1.5 * raced["static"]["padding_efficiency"]


def test_static_batches_are_all_as_long_as_the_longest_sequence(workload):
    for name, widths in (("static", {workload.longest}), ("dynamic", None)):
        contender = Contender(MODES[name], workload, SETTINGS)
        found = {contender.batch(rows)[0]["token"].shape[1] for rows in workload.updates}
        assert found == widths if widths else len(found) > 1


def test_rounds_begin_with_the_same_weights(workload):
    contender = Contender(MODES["dynamic"], workload, SETTINGS)
    first = {name: weight.clone() for name, weight in contender.model.state_dict().items()}
    contender.update(workload.updates[0])
    assert any(not torch.equal(first[name], weight) for name, weight in contender.model.state_dict().items())
    contender.reset()
    assert all(torch.equal(first[name], weight) for name, weight in contender.model.state_dict().items())


def test_a_mode_that_cannot_run_is_told_and_the_others_run(workload, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nhere")

    monkeypatch.setattr(torch, "compile", broken)
    found = race(workload, ["dynamic", "static", "compiled"], 1, SETTINGS)
    assert found["compiled"] == {"error": "RuntimeError: no compiler"}
    assert "tokens_per_s" in found["dynamic"] and "tokens_per_s" in found["static"]


def test_structure_changes_between_steps_without_errors(workload):
    found = structure_test(workload, SETTINGS)
    assert found["changes"] == 3 * 3 * 2 * 4 * 2 and found["errors"] == []


def test_an_error_when_structure_changes_is_told(workload, monkeypatch):
    update = Contender.update

    def failing(self, rows):
        if self.model.recurrent.cell == "gru" and len(self.model.recurrent.forward_layers) == 3:
            raise RuntimeError("cannot")
        return update(self, rows)

    monkeypatch.setattr(Contender, "update", failing)
    errors = structure_test(workload, SETTINGS)["errors"]
    assert len(errors) == 16 and errors[0].startswith("gru, 3 layers, last, ")


FINE = {"leaks": False, "mb_per_1000_steps": 0.0}
SOUND = {"errors": []}


@pytest.mark.parametrize(
    ("ratio", "memory", "leak", "structure", "word"),
    [
        (0.2, 0.8, FINE, SOUND, "good"),
        (1.15, 1.0, FINE, SOUND, "good"),
        (1.2, 1.0, FINE, SOUND, "acceptable"),
        (1.3, 1.0, FINE, SOUND, "bad"),
        (0.2, 1.2, FINE, SOUND, "bad"),
        (0.2, 0.8, {"leaks": True, "mb_per_1000_steps": 9.0}, SOUND, "bad"),
        (0.2, 0.8, FINE, {"errors": ["gru: failed"]}, "bad"),
    ],
)
def test_the_verdict_is_in_the_terms_of_the_writings(ratio, memory, leak, structure, word):
    modes = {
        "dynamic": {"step_ms": ratio, "time_ratio": ratio, "memory_mb": 100 * memory},
        "static": {"step_ms": 1.0, "time_ratio": 1.0, "memory_mb": 100.0},
    }
    found = verdict(modes, leak, structure)
    assert found["word"] == word and f"{ratio:.2f} times" in found["reason"]


def test_without_both_sides_there_is_no_verdict():
    assert verdict({"dynamic": {"error": "x"}, "static": {"step_ms": 1.0}}, FINE, SOUND)["word"] == "none"
