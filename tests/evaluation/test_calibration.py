"""Probabilities, their calibration error, and temperature scaling."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.evaluation.calibration import calibration_error, calibration_error_by_chance, fit_temperature, softmax


@settings(max_examples=50)
@given(st.lists(st.floats(-500, 500, width=32), min_size=2, max_size=5))
def test_softmax_equals_that_of_torch_and_never_overflows(row):
    probabilities = softmax(np.array([row], np.float32))
    assert probabilities.dtype == np.float64
    torch.testing.assert_close(torch.from_numpy(probabilities), torch.tensor([row], dtype=torch.float64).softmax(1))


def test_the_calibration_error_equals_that_of_a_plain_loop():
    generator = np.random.default_rng(0)
    labels = np.sort(generator.integers(0, 4, 200))
    probabilities = softmax(generator.standard_normal((200, 4)) + 1.5 * np.eye(4)[labels])
    confidence, is_right = probabilities.max(1), probabilities.argmax(1) == labels
    expected = 0.0
    for k in range(15):
        in_bin = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if in_bin.any():
            expected += in_bin.mean() * abs(is_right[in_bin].mean() - confidence[in_bin].mean())
    assert calibration_error(labels, probabilities) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_temperature_of_scaled_logits_is_their_scale(scale):
    generator = np.random.default_rng(4)
    logits = generator.normal(size=(20000, 4)) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probabilities.cumsum(axis=1) < generator.random((20000, 1))).sum(axis=1)
    assert fit_temperature((logits * scale).astype(np.float32), labels) == pytest.approx(scale, rel=0.05)


def test_a_split_without_errors_does_not_make_the_model_certain():
    labels = np.array([0, 1, 1, 0])
    assert fit_temperature(np.eye(2, dtype=np.float32)[labels], labels) > 0.1


def test_right_probabilities_show_the_error_that_is_expected_of_them():
    generator = np.random.default_rng(0)
    probabilities = softmax(generator.normal(size=(400, 3)) * 2)
    expected = calibration_error_by_chance(probabilities)
    assert expected == calibration_error_by_chance(probabilities), "the same in every run"
    drawn = [(generator.random((400, 1)) > probabilities.cumsum(axis=1)).sum(axis=1) for _ in range(200)]
    assert expected == pytest.approx(np.mean([calibration_error(labels, probabilities) for labels in drawn]), rel=0.05)
    assert calibration_error_by_chance(np.repeat(probabilities, 100, axis=0)) < expected / 8
