"""ladder.py: the generated sets are what they claim to be, and figures are read as they are."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import seqclf

SCRIPT = Path(__file__).parent / "ladder.py"
specification = importlib.util.spec_from_file_location("benchmark_ladder", SCRIPT)
ladder = importlib.util.module_from_spec(specification)
specification.loader.exec_module(ladder)


@pytest.mark.parametrize("name", ladder.TOKENS)
def test_sequences_have_all_classes_and_lengths(name):
    table = ladder.token_table(name, 300, seed=2)
    assert Counter(table["label"].to_pylist()) == {f"class{label}": 100 for label in range(3)}
    lengths = [len(row) for row in table["letters"].to_pylist()]
    assert min(lengths) == 8 and max(lengths) == 40
    assert table.equals(ladder.token_table(name, 300, seed=2))
    assert not table.equals(ladder.token_table(name, 300, seed=3))


@pytest.mark.parametrize(("name", "order_tells"), [("bag", False), ("markov", True), ("trigram", True)])
def test_n_grams_beat_single_letters_where_the_order_tells(name, order_tells, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQCLF_CACHE", str(tmp_path / "cache"))
    dataset = seqclf.load_data(None, label=None, overrides=ladder.write_generated(name, 0, tmp_path))
    assert dataset.splits["test"].sequences.lengths.shape == (1000,)
    found, tokens = ladder.ngrams(dataset), ladder._tokens
    monkeypatch.setattr(ladder, "_tokens", lambda data, split: [np.sort(row) for row in tokens(data, split)])
    assert (found > ladder.ngrams(dataset) + 0.2) == order_tells and found > 0.5


def test_a_score_is_accuracy_or_average_precision(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQCLF_CACHE", str(tmp_path / "cache"))
    overrides = ladder.write_generated("bag", 0, tmp_path)
    dataset = seqclf.load_data(None, label=None, overrides=overrides)
    labels = np.asarray(dataset.splits["test"].labels)
    assert ladder.score(dataset, np.eye(3)[labels], "test") == 1


@pytest.mark.parametrize("name", ladder.TABLES)
def test_a_table_has_the_labels_that_its_rule_tells(name):
    table, probabilities = ladder.event_tables.generate(name, 2000, seed=5)
    labels = np.array(table["label"].to_pylist()) == "yes"
    assert 0.08 < labels.mean() < 0.75
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1)):  # the labels are as frequent as the probabilities say
        rows = (probabilities >= low) & (probabilities < high)
        if rows.sum() > 100:
            assert labels[rows].mean() == pytest.approx(probabilities[rows].mean(), abs=0.05)
    assert table.equals(ladder.event_tables.generate(name, 2000, seed=5)[0])


def test_a_row_shows_means_over_the_seeds():
    results = [
        {"set": "bag", "order-blind": 0.5, "rival": None, **dict.fromkeys(ladder.RUNGS[1:-1])} | more
        for more in ({"network": 0.25, "cpu_s": 10}, {"network": 0.75, "cpu_s": 20})
    ]
    assert ladder.table_row(results) == "| bag | 0.500 | - | - | - | - | - | - | 0.500 | - | - | - | 15 |"
