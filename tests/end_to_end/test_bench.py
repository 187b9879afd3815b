"""The benchmark command: its result line and error lines."""

import json

import pytest

TINY = ["sequences=64", "batch_size=8", "updates=3", "rounds=1", "model.hidden_size=8"]
MODES = "modes=[dynamic,packed,static]"


@pytest.fixture(scope="module")
def benched(shell):
    """The completed command of one benchmark."""
    return shell("bench", "lengths=[uniform]", MODES, *TINY)


@pytest.mark.slow
def test_result_line_holds_all_figures_of_every_mode(benched):
    result = benched.result
    assert list(result["workloads"]) == ["uniform"]
    for workload in result["workloads"].values():
        assert list(workload["modes"]) == ["dynamic", "packed", "static"]
        for figures in workload["modes"].values():
            assert {"tokens_per_s", "step_ms", "memory_mb", "first_step_s", "loss"} <= set(figures)
            assert figures["memory_mb"] > 50
    modes = result["workloads"]["uniform"]["modes"]
    assert modes["static"]["padding_efficiency"] < 0.8 < modes["dynamic"]["padding_efficiency"]


@pytest.mark.slow
def test_user_files_are_benchmarked_as_one_workload(shell):
    data = ["data=files", "data.train=train.jsonl", "data.label=fraud", "data.id=card"]
    result = shell("bench", *data, "modes=[dynamic,static]", *TINY).result
    assert list(result["workloads"]) == ["data"]
    assert result["workloads"]["data"]["modes"]["dynamic"]["loss"] == pytest.approx(
        result["workloads"]["data"]["modes"]["static"]["loss"], abs=1e-3
    )
    assert json.dumps(result)
