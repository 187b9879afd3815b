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
            assert {"tokens_per_s", "step_ms", "step_ms_p95", "memory_mb", "first_step_s", "recall"} <= set(figures)
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


@pytest.mark.slow
def test_models_are_compared_with_the_same_overrides(shell):
    completed = shell("bench", "models=[gru,transformer]", "lengths=[equal]", *TINY[:4], "model.hidden_size=8")
    result = completed.result
    assert list(result["models"]) == ["gru", "transformer"]
    assert all(model["hidden_size"] == 8 for model in result["models"].values())
    figures = result["workloads"]["equal"]["models"]
    assert figures["gru"]["training"]["time_ratio"] == 1 and figures["transformer"]["training"]["memory_mb"] > 50
    assert "against gru" in completed.stderr


@pytest.mark.slow
def test_a_model_that_does_not_fit_the_data_is_reported_beside_the_others(shell):
    data = ["data=files", "data.train=train.jsonl", "data.label=fraud", "data.id=card"]
    completed = shell("bench", "models=[lstm,tree_lstm]", *data, *TINY[:4], "model.hidden_size=8")
    figures = completed.result["workloads"]["data"]["models"]
    assert figures["lstm"]["prediction"]["tokens_per_s"] > 0
    assert list(figures["tree_lstm"]) == ["error"] and "trees" in figures["tree_lstm"]["error"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("models=[lstm]", "error: models=['lstm']: must be a list of at least two models, such as [lstm,transformer]"),
        ("models=lstm", "error: models=lstm: must be a list of at least two models, such as [lstm,transformer]"),
        ("models=[lstm,lstm]", "error: models: names lstm twice"),
        ("models=[lstm,grux]", "error: models=grux: must be one of lstm, adaptive, auto, conv_lstm, gru, gru_d"),
        ("models=[lstm,gru] model=transformer", "error: model=transformer: has no effect beside models; name it there"),
        (
            "models=[lstm,gru] modes=[dynamic,static]",
            "error: modes=[dynamic,static]: has no effect beside models, which are timed in the mode dynamic",
        ),
        (
            "models=[lstm,transformer] model.cell=gru",
            "error: model=transformer: model.cell: no such key; model=transformer has no cell",
        ),
    ],
)
@pytest.mark.slow
def test_invalid_models_end_in_one_error_line(shell, overrides, message):
    completed = shell("bench", "lengths=[equal]", "sequences=64", *overrides.split())
    assert completed.exit_code == 2 and completed.stderr.strip().splitlines()[-1].startswith(message)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("modes=[dynamic,eager]", "error: modes=eager: must be one of dynamic, packed, static, compiled"),
        ("modes=[dynamic]", "error: modes: must hold dynamic and static, which are compared"),
        ("lengths=[normal]", "error: lengths=normal: must be one of equal, uniform"),
        (
            "precision=16-mixed device=cpu",
            "error: precision=16-mixed: needs an NVIDIA device; set precision=bf16-mixed",
        ),
        ("precision=8-bit", "error: precision=8-bit: must be 32-true, bf16-mixed or 16-mixed"),
        ("batch_size=100", "error: batch_size=100: there are only 64 sequences; set a smaller one"),
        ("updates=0", "error: updates=0"),
    ],
)
@pytest.mark.slow
def test_invalid_settings_end_in_one_error_line(shell, overrides, message):
    completed = shell("bench", "lengths=[equal]", *TINY, *overrides.split())
    assert completed.exit_code == 2 and completed.stderr.strip().splitlines()[-1].startswith(message)
