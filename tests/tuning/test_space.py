"""What is drawn from a space, and what is read from a trial's scores."""

import pytest

from seqclf.errors import InputError
from seqclf.tuning.space import as_overrides, check_space, suggest
from seqclf.tuning.trials import read_metric

optuna = pytest.importorskip("optuna")

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "layers": {"low": 1, "high": 3},
    "even": {"low": 2, "high": 8, "step": 2},
    "pooling": ["last", None, True, 3],
    "sizes": [[1, 2], {"a": 1}],
}


def test_values_are_of_their_space_and_of_its_kind():
    check_space(SPACE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [suggest(study.ask(), SPACE) for _ in range(60)]
    assert all(1e-4 <= one["lr"] <= 1e-2 for one in drawn)
    assert sum(one["lr"] < 1e-3 for one in drawn) > 15, "on a log scale"
    for key, expected in (("layers", {1, 2, 3}), ("even", {2, 4, 6, 8}), ("pooling", {"last", None, True, 3})):
        assert {one[key] for one in drawn} == expected
        assert all(isinstance(one["layers"], int) for one in drawn)
    assert [1, 2] in [one["sizes"] for one in drawn] and {"a": 1} in [one["sizes"] for one in drawn]


def test_overrides_are_written_as_hydra_reads_them():
    chosen = {"a.b": None, "c": True, "d": "last", "e": [1, 2], "f": 0.5}
    assert as_overrides(chosen) == ["a.b=null", "c=true", "d=last", "e=[1, 2]", "f=0.5"]


@pytest.mark.parametrize("given", [3, {"low": 1}, {"low": 1, "high": 2, "by": 3}, {"low": 0, "high": 1, "log": True}])
def test_what_is_no_space_is_refused_by_name(given):
    with pytest.raises(InputError, match=r"search\.space: lr="):
        check_space({"lr": given})


def test_a_metric_is_a_number_by_its_dotted_name():
    metrics = {"validation": {"recall": 0.5, "positive": {"average_precision": 1}, "confusion": [[1]]}}
    assert read_metric(metrics, "validation.recall") == 0.5
    assert read_metric(metrics, "validation.positive.average_precision") == 1.0
    for name in ("validation.beauty", "validation", "validation.confusion", "recall.of.what"):
        with pytest.raises(InputError, match=f"search.metric={name}: metrics.json has no such number"):
            read_metric(metrics, name)


def test_the_rows_a_promise_rests_on_are_not_searched():
    with pytest.raises(InputError, match=r"set decision\.holdout outside of the space"):
        check_space({"decision.holdout": [0.3, 0.5]})
