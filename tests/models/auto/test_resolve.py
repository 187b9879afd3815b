"""Rules of model=auto: which data gets which network."""

import numpy as np
import pytest
from models.auto.conftest import BAG, CATEGORY, MASKED, NUMBER

from seqclf.config.command_keys import default_settings
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import order_strength, summarize_sequences
from seqclf.errors import InputError
from seqclf.models.auto.config import MIN_KERNEL_TOKENS, resolve_settings
from seqclf.models.ensemble import build_classifier
from seqclf.training.check_targets import resolve_for_data, resolve_model

AUTO = default_settings("model")
WORDS = {**CATEGORY, "size": 20_000}


def resolved(fields, order=0.5, median=96, rows=1000, **settings):
    dataset = {
        "fields": fields,
        "rows": {"train": rows},
        "sequences": {"order": order, "median": median, "longest": 2 * median},
    }
    return resolve_settings({**AUTO, **settings}, dataset)


def test_numbers_with_order_get_kernels_and_windows_of_the_median_length():
    settings, text = resolved([NUMBER])
    assert settings["heads"] == ["recurrent", "kernels", "statistics"]
    assert settings["window"] == 3 and settings["dilations"][0] == 1 and settings["dilations"][-1] == 11
    assert text == (
        "numbers with order (autocorrelation 0.50), median 96 tokens: kernel windows of 3 tokens, "
        "heads recurrent + kernels + statistics"
    )


def test_short_sequences_of_numbers_get_no_kernels():
    for fields in ([NUMBER], [NUMBER, CATEGORY]):
        settings, text = resolved(fields, median=MIN_KERNEL_TOKENS - 1)
        assert settings["dilations"] == [] and settings["window"] == 1 and "kernel" not in text
        assert settings["heads"][:3] == ["recurrent", "linear", "statistics"]
        assert "kernels" in resolved(fields, median=MIN_KERNEL_TOKENS)[0]["heads"]


@pytest.mark.parametrize(("fields", "order"), [([NUMBER, CATEGORY], 0.01), ([MASKED, BAG], 0.9)])
def test_numbers_without_order_or_with_missing_values_get_statistics_and_no_kernels(fields, order):
    settings, _ = resolved(fields, order=order)
    assert settings["heads"] == ["recurrent", "linear", "statistics", "categories", *["ngrams"] * (CATEGORY in fields)]
    assert settings["dilations"] == [] and settings["window"] == 1 and settings["convolution"] == 0


def test_tokens_get_ngrams_a_convolution_and_for_small_vocabularies_counts():
    settings, _ = resolved([CATEGORY], order=None)
    assert settings["heads"] == ["recurrent", "linear", "statistics", "ngrams"] and settings["convolution"] == 3
    words, text = resolved([WORDS], order=None)
    assert words["heads"] == ["recurrent", "ngrams"] and text.startswith("20,000 words, median 96 tokens")
    assert words["hidden_size"] > settings["hidden_size"] and words["dropout"] > settings["dropout"]


def test_a_large_static_vocabulary_gets_a_linear_head():
    shop = {"name": "shop", "kind": "category", "size": 5000, "static": True}
    assert resolved([WORDS, shop], order=None)[0]["heads"] == ["recurrent", "linear", "ngrams"]
    assert resolved([WORDS, shop], order=None, rows=200_000)[0]["closed_form"] is False


def test_many_rows_train_the_kernels_head_by_gradients():
    assert resolved([NUMBER], rows=5000)[0]["closed_form"] is True
    assert resolved([NUMBER], rows=200_000)[0]["closed_form"] is False
    # With few features, the regression is cheap for any number of rows.
    assert resolved([CATEGORY], order=None, rows=200_000)[0]["closed_form"] is True


def test_values_that_the_user_wrote_stay():
    settings, _ = resolved([NUMBER], heads=["recurrent"], window=7, hidden_size=32)
    assert (settings["heads"], settings["window"], settings["hidden_size"]) == (["recurrent"], 7, 32)
    assert resolve_settings(settings, {}) == (settings, "")  # a resolved network needs no data


def test_trees_get_a_tree_lstm():
    parents = {"name": "parents", "kind": "parents", "node_classes": []}
    dataset = {"fields": [CATEGORY, parents], "rows": {"train": 10}, "sequences": {}}
    settings, _ = resolve_for_data(resolve_model({**AUTO, "hidden_size": 16}), dataset)
    network = build_classifier(settings, [CATEGORY, parents], 3)
    assert type(network).__name__ == "TreeClassifier" and network.encoder.size == 16
    with pytest.raises(InputError, match="is not used for trees"):
        resolve_settings({**AUTO, "window": 3}, dataset)


@pytest.mark.parametrize("fields", [[NUMBER], [NUMBER, CATEGORY], [MASKED, BAG], [CATEGORY], [WORDS]])
def test_each_resolved_network_is_built(fields):
    settings, _ = resolved(fields)
    assert build_classifier(settings, fields, 3).names == settings["heads"]


def test_the_order_of_tokens_is_measured_within_sequences():
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(5, 60, 300))])
    count = int(offsets[-1])
    levels = np.repeat(random.normal(size=300), np.diff(offsets)) * 5  # differs between sequences only
    noise = random.normal(size=count)
    waves = np.sin(np.arange(count) / 4)
    measure = lambda values: order_strength(Ragged(offsets, {"x": values[:, None]}), ["x"])  # noqa: E731
    assert measure(levels + noise) < 0.05 < measure(waves + noise)
    for seed in range(30):  # few tokens in random order have no order by chance
        few = np.random.default_rng(seed).normal(size=(300, 8))
        assert order_strength(Ragged(np.arange(0, 301, 20), {"x": few}), ["x"]) < 0.05
    assert measure(np.zeros(count)) < 0.05 and measure(1e30 * waves) > 0.5
    assert measure(np.where(np.arange(count) % 7 == 0, 1e8, 0.0) + 0 * waves) <= 1.1


def test_the_summary_names_lengths_and_has_no_order_without_numbers():
    sequences = Ragged(np.array([0, 2, 10, 13]), {"token": np.arange(13)})
    assert summarize_sequences(sequences, [CATEGORY]) == {"order": None, "median": 3, "longest": 8}


def test_many_rows_need_less_dropout():
    few, many = (resolved([NUMBER, CATEGORY], order=0.0, rows=rows)[0] for rows in (2000, 32_000))
    assert many["dropout"] == pytest.approx(few["dropout"] / 4) and many["feature_dropout"] < few["feature_dropout"]
    assert (
        resolved([WORDS], order=None, rows=32_000)[0]["dropout"]
        == resolved([WORDS], order=None, rows=100)[0]["dropout"]
    )
