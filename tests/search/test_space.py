"""Search spaces: draws, overrides and errors; and the metric of a trial."""

import pytest

from seqclf.errors import InputError
from seqclf.search.space import as_overrides, check_space, suggest
from seqclf.search.trials import read_metric

optuna = pytest.importorskip("optuna")

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "layers": {"low": 1, "high": 3},
    "even": {"low": 2, "high": 8, "step": 2},
    "pooling": ["last", None, True, 3],
    "sizes": [[1, 2], {"a": 1}],
}


def test_values_are_drawn_from_their_space_with_its_type():
    check_space(SPACE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [suggest(study.ask(), SPACE) for _ in range(60)]
    assert all(1e-4 <= settings["lr"] <= 1e-2 for settings in drawn)
    assert sum(settings["lr"] < 1e-3 for settings in drawn) > 15, "on a log scale"
    for key, expected in (("layers", {1, 2, 3}), ("even", {2, 4, 6, 8}), ("pooling", {"last", None, True, 3})):
        assert {settings[key] for settings in drawn} == expected
        assert all(isinstance(settings["layers"], int) for settings in drawn)
    assert [1, 2] in [settings["sizes"] for settings in drawn] and {"a": 1} in [settings["sizes"] for settings in drawn]


def test_overrides_are_written_as_hydra_reads_them():
    settings = {"a.b": None, "c": True, "d": "last", "e": [1, 2], "f": 0.5}
    assert as_overrides(settings) == ["a.b=null", "c=true", "d=last", "e=[1, 2]", "f=0.5"]


@pytest.mark.parametrize("values", [3, {"low": 1}, {"low": 1, "high": 2, "by": 3}, {"low": 0, "high": 1, "log": True}])
def test_an_invalid_space_is_refused_by_key(values):
    with pytest.raises(InputError, match=r"search\.space: lr="):
        check_space({"lr": values})


def test_a_metric_is_read_by_its_dotted_name():
    metrics = {"validation": {"recall": 0.5, "positive": {"average_precision": 1}, "confusion": [[1]]}}
    assert read_metric(metrics, "validation.recall") == 0.5
    assert read_metric(metrics, "validation.positive.average_precision") == 1.0
    for name in ("validation.beauty", "validation", "validation.confusion", "recall.of.what"):
        with pytest.raises(InputError, match=f"search.metric={name}: metrics.json has no such number"):
            read_metric(metrics, name)


def test_the_holdout_of_a_guarantee_is_not_searched():
    with pytest.raises(InputError, match=r"set decision\.holdout outside of the space"):
        check_space({"decision.holdout": [0.3, 0.5]})
