"""Alarms of a model that is not shown to beat the baseline, and the rows that would show the difference."""

import numpy as np

from seqclf.evaluation.baseline_alarms import baseline_alarms, rows_to_tell
from seqclf.evaluation.comparison import Comparison, mean_difference_limits
from seqclf.evaluation.decision import Decision


def compared(difference, half_width, baseline_score=0.5):
    return Comparison(
        metric="average_precision",
        model=baseline_score + difference,
        baseline=baseline_score,
        difference=difference,
        low=difference - half_width,
        high=difference + half_width,
    )


def alarms(*entries, count=200, unit="rows"):
    return baseline_alarms(entries, Decision(), count, unit)


def test_a_difference_that_more_rows_would_show_asks_for_these_rows():
    """Four times the rows make the interval half as wide, which shows the difference in half of the samples only."""
    (alarm,) = alarms(compared(0.05, 0.1))
    assert alarm.kind == "not_better_than_baseline" and alarm.text.startswith("not shown to be better than a model")
    assert alarm.text.endswith(
        "; about 1,700 rows instead of 200 would show a difference of this size with a probability of 80%"
    )
    assert alarm.remedy.endswith("compared by validation scores")


def test_groups_are_asked_for_where_rows_come_in_groups():
    (alarm,) = alarms(compared(0.05, 0.1), count=12, unit="groups")
    assert "about 99 groups instead of 12" in alarm.text


def test_a_worse_model_and_one_that_is_not_shown_to_be_better_are_worded_differently():
    (worse,), (unclear,) = alarms(compared(-0.2, 0.05)), alarms(compared(-0.01, 0.05))
    assert worse.text.startswith("worse than a model that ignores the order: average precision 0.300 against 0.500")
    assert worse.remedy.startswith("the simpler model") and "instead of" not in worse.text
    assert unclear.text.startswith("not shown to be better than") and "instead of" not in unclear.text
    assert alarms(compared(0.2, 0.05)) == [] and alarms() == []


def test_two_nearly_perfect_models_raise_no_alarm():
    for model in (1.0, 0.99, 0.97):
        assert alarms(compared(model - 1.0, 0.04, baseline_score=1.0)) == []
    assert alarms(compared(-0.03, 0.01, baseline_score=1.0))[0].text.startswith("worse than")


def test_rows_that_could_not_show_a_perfect_model_are_too_few():
    (alarm,) = alarms(compared(0.0, 0.6, baseline_score=0.6))
    assert alarm.remedy == "more rows to judge it by: 200 would not show that a perfect model is better"


def power_of_advice(rows, wins, losses, repeats):
    """How often the advised rows show that the model is better, where it wins and loses these shares of the rows."""

    def comparison(counts):
        differences = np.repeat([1, -1, 0], counts)
        low, high = mean_difference_limits(differences, np.random.default_rng(0))
        mean = float(differences.mean())
        return Comparison(metric="accuracy", model=0.5 + mean, baseline=0.5, difference=mean, low=low, high=high)

    shares = np.array([wins, losses, 1 - wins - losses])
    needed = rows_to_tell(comparison(np.rint(rows * shares).astype(int)), rows)
    generator = np.random.default_rng(0)
    return sum(comparison(generator.multinomial(needed, shares)).is_better for _ in range(repeats)) / repeats


def test_the_advised_rows_show_the_difference_in_four_of_five_samples():
    """Rows that make the interval as wide as the difference show it in 0.49 of the samples."""
    assert 0.75 <= power_of_advice(200, 0.13, 0.08, 200) <= 0.88
