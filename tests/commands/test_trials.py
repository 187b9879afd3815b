"""Search spaces: draws, overrides and errors; and the metric of a trial."""

import math
import subprocess
from collections import Counter
from unittest.mock import Mock

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.commands import trials
from seqclf.commands.trials import as_overrides, open_study, read_metric, run_trials, suggest, write_best
from seqclf.config.hydra_config import compose_config
from seqclf.errors import InputError
from seqclf.settings.base import parse_options
from seqclf.settings.command_settings import SearchOptions, check_space

optuna = pytest.importorskip("optuna")

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "layers": {"low": 1, "high": 3},
    "even": {"low": 2, "high": 8, "step": 2},
    "pooling": ["last", None, True, 3],
    "sizes": [[1, 2], {"a": 1}],
}


def drawn_from(trial, space):
    return {key: suggest(trial, key, values) for key, values in space.items()}


def test_values_are_drawn_from_their_space_with_its_type():
    check_space(SPACE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [drawn_from(study.ask(), SPACE) for _ in range(60)]
    assert all(1e-4 <= settings["lr"] <= 1e-2 for settings in drawn)
    assert sum(settings["lr"] < 1e-3 for settings in drawn) > 15, "on a log scale"
    for key, expected in (("layers", {1, 2, 3}), ("even", {2, 4, 6, 8}), ("pooling", {"last", None, True, 3})):
        assert {settings[key] for settings in drawn} == expected
        assert all(isinstance(settings["layers"], int) for settings in drawn)
    assert [1, 2] in [settings["sizes"] for settings in drawn] and {"a": 1} in [settings["sizes"] for settings in drawn]


WRONG = [{"by": 3}, {"low": 0, "log": True}, {"high": math.inf}, *({"step": step} for step in (0, -1, "x", True))]
BAD = [3, {"low": 1}, *({"low": 1, "high": 2, **wrong} for wrong in WRONG)]


@pytest.mark.parametrize("space", [{"decision.holdout": [0.3, 0.5]}, *({"lr": values} for values in BAD)])
def test_an_invalid_space_is_refused_by_key(space):
    with pytest.raises(InputError, match=rf"search\.space: {next(iter(space))}="):
        check_space(space)


def test_a_metric_is_read_by_its_dotted_name():
    scores = {
        "recall": 0.5,
        "positive": {"average_precision": 1},
        "recall_by_class": {"v0": 0.5, "v0.1": 0.25},
        "confusion": [[1]],
    }
    metrics = {"validation": scores}
    assert read_metric(metrics, "validation.recall") == 0.5
    assert read_metric(metrics, "validation.positive.average_precision") == 1.0
    assert read_metric(metrics, "validation.recall_by_class.v0.1") == 0.25
    for name in ("validation.beauty", "validation", "validation.confusion", "recall.of.what"):
        with pytest.raises(InputError, match=f"search.metric={name}: metrics.json has no such number"):
            read_metric(metrics, name)


def options(**values):
    given = {"space": SPACE, "usual": {}, "trials": 1, "metric": "validation.recall", "seed": 0}
    return parse_options(SearchOptions, {**given, **values}, "search")


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("validation.loss", "minimize"),
        ("validation.ece", "minimize"),
        ("calibration.ece.validation.after", "minimize"),
        ("validation.positive.f1", "maximize"),
        ("validation.recall_by_class.loss", "maximize"),
    ],
)
def test_the_direction_follows_the_metric(metric, goal):
    assert options(metric=metric).direction == goal


def test_a_search_by_loss_finds_the_lowest(tmp_path):
    study = open_study(tmp_path, options(metric="validation.loss"), SPACE, [])
    for loss in (0.4, 0.2, 0.9):
        study.tell(study.ask(), loss)
    assert study.best_trial.value == 0.2
    for metric, space in (("validation.ece", SPACE), ("validation.loss", {"layers": [1, 2]})):
        with pytest.raises(InputError) as refused:
            open_study(tmp_path, options(metric=metric), space, [])
        assert refused.value.where == f"hydra.run.dir={tmp_path}"


@pytest.mark.parametrize("metric", ["validation.f2", "validation", "recall", "baseline.recall"])
def test_an_unknown_metric_is_refused_before_the_first_trial(metric):
    with pytest.raises(InputError) as refused:
        options(metric=metric)
    assert refused.value.where == f"search.metric={metric}"


AWKWARD = {
    "data.label": "my label, or 'yours'",
    "data.positive": "7",
    "data.id": "null",
    "data.encoding": "a=b",
    "optimizer.betas": [0.9, 1e-05],
    "structure": [{"epoch": 2, "layers": 2}],
    "decision.cost": {"fraud, big": 10, "legal": 1.5},
}


def test_lists_mappings_and_texts_are_quoted_as_hydra_reads_them():
    read = [OverridesParser.create().parse_override(text) for text in as_overrides(AWKWARD)]
    assert {override.key_or_group: override.value() for override in read} == AWKWARD
    assert [type(override.value()) for override in read] == [type(value) for value in AWKWARD.values()]


def test_the_best_settings_are_an_experiment_that_composes_to_them(tmp_path):
    best = {"model": "gru", "model.layers": 2, **AWKWARD}
    folder = tmp_path / "experiment"
    folder.mkdir()
    write_best(best, "Trial 3: validation.recall 0.9", folder / "best.yaml")
    config = compose_config("train", ["experiment=best", f"hydra.searchpath=[file://{tmp_path}]"]).config
    assert (config["model"]["cell"], config["model"]["layers"]) == ("gru", 2)
    assert config["data"]["label"] == AWKWARD["data.label"] and config["data"]["positive"] == "7"
    assert config["optimizer"]["betas"] == AWKWARD["optimizer.betas"]
    assert config["decision"]["cost"] == AWKWARD["decision.cost"] and config["structure"] == AWKWARD["structure"]


def test_the_folder_of_a_trial_is_quoted(tmp_path, monkeypatch):
    run = Mock(return_value=subprocess.CompletedProcess([], 1, stderr="error: stop"))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(InputError, match="stop"):
        trials._train([], tmp_path / "a, b (1)", "validation.recall")
    folder = OverridesParser.create().parse_override(run.call_args[0][0][4])
    assert folder.value() == f"{tmp_path}/a, b (1)"


@pytest.mark.parametrize("good", ["2457", ""])
def test_a_failing_trial_never_ends_a_search_and_is_not_drawn_again(tmp_path, monkeypatch, good):
    def train(overrides, run, metric):
        tried.append(overrides[-1][-1])
        if tried[-1] not in good:
            raise InputError(None, "diverged")
        return 0.5

    tried = []
    monkeypatch.setattr(trials, "_train", train)
    study = open_study(tmp_path, options(trials=6), SPACE, [])
    search = run_trials(study, options(trials=6), {"model.layers": list(range(8))}, [], tmp_path)
    if good:
        list(search)
    else:
        with pytest.raises(InputError, match=r"all 6 trials failed, .*diverged"):
            list(search)
    failed = [number for number in tried if number not in good]
    assert len(failed) == len(set(failed)) > 2 and len(tried) - len(failed) == (6 if good else 0)
    states = Counter(trial.state.name for trial in study.trials if "error" in trial.user_attrs)
    assert states == {"FAIL": len(failed)}
