"""The epoch chosen by the mean of a few validations, on noisy series whose true values are known."""

import numpy as np
import pytest

from seqclf.training.smoothed_monitor import smoothed_value, window_length

ROWS = 60  # validation rows; the accuracy of so few has a standard deviation of about 0.05
SERIES = 2000


def plateau(time):
    return 0.5 + 0.3 * (1 - np.exp(-6 * time))


def overfitting(time):
    return 0.5 + 0.3 * np.exp(-(((time - 0.4) / 0.35) ** 2))


@pytest.mark.parametrize("epochs", [20, 30, 190])
@pytest.mark.parametrize("course", [plateau, overfitting])
def test_the_smoothed_choice_is_truly_better_on_average(course, epochs):
    """The true accuracy of the chosen epoch, paired over many series of the same course."""
    generator = np.random.default_rng(0)
    truth = np.clip(course(np.arange(epochs) / epochs), 0, 1)
    window = window_length(epochs)
    gains = []
    for _ in range(SERIES if epochs < 100 else 300):
        observed = (generator.binomial(ROWS, truth) / ROWS).tolist()
        smoothed = [smoothed_value(observed[: count + 1], window) for count in range(len(observed))]
        chosen, raw = np.argmax(smoothed), np.argmax(observed)
        gains.append(truth[chosen] - truth[raw])
    error = np.std(gains) / np.sqrt(len(gains))
    assert np.mean(gains) > 3 * error


@pytest.mark.parametrize("epochs", range(1, 11))
def test_a_mean_never_spans_more_than_a_tenth_of_a_training(epochs):
    """A short training is chosen by single validations, because the lag of a mean would cost more."""
    assert window_length(epochs) == window_length(5 * epochs, every=5) == 1
    assert window_length(10 * epochs) <= epochs


def test_smoothed_values_are_plain_means_of_the_values_so_far():
    values = np.random.default_rng(1).normal(size=40).tolist()
    for window in (1, 2, 3):
        expected = [np.mean(values[max(0, count - window) : count]) for count in range(1, 41)]
        assert [smoothed_value(values[: k + 1], window) for k in range(len(values))] == pytest.approx(expected)


def test_means_of_equal_values_are_equal_in_any_order():
    assert smoothed_value([0.1, 0.2, 0.3], 3) == smoothed_value([0.3, 0.1, 0.2], 3)
