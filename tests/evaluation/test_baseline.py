"""The baseline learns what needs no order, and nothing else."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.ragged import Ragged, take
from seqclf.data.storage.store import Split, sample_split
from seqclf.evaluation.baseline import fit_baseline
from seqclf.evaluation.baseline_scores import best_model, metrics_of, score_baseline, score_single_fields
from seqclf.evaluation.metrics import classification_metrics

SPECS = [{"name": "x", "kind": "category", "size": 4}, {"name": "v", "kind": "number", "width": 2}]


def make_split(count, label_of, seed):
    """Draw sequences of ids (T,) and values (T, 2). `label_of(ids, values)` gives the class of each."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 9, count)
    offsets = np.append(0, np.cumsum(lengths))
    fields = {
        "x": generator.integers(1, 4, offsets[-1]).astype(np.int32),
        "v": generator.normal(0, 1, (offsets[-1], 2)).astype(np.float32),
    }
    for values in fields.values():
        values.flags.writeable = False  # as memory maps are
    tokens = [slice(start, stop) for start, stop in itertools.pairwise(offsets)]
    labels = np.array([label_of(fields["x"][span], fields["v"][span]) for span in tokens])
    return Split(Ragged(offsets, fields), labels, pa.array([str(row) for row in range(count)]), np.arange(count))


def baseline_accuracies(label_of):
    splits = {"train": make_split(800, label_of, 0), "test": make_split(400, label_of, 1)}
    baseline = fit_baseline(splits, SPECS, 3)
    labels = splits["test"].labels
    return [float((probabilities["test"].argmax(axis=1) == labels).mean()) for probabilities in baseline.values()]


def test_counts_and_means_are_learned():
    assert max(baseline_accuracies(lambda ids, _: int((ids == 1).sum() > 1))) > 0.95
    assert min(baseline_accuracies(lambda _, values: int(values[:, 0].mean() > 0))) > 0.9


def test_order_is_not_learned():
    """The class compares the first token with the last, which no bag of tokens contains."""
    assert max(baseline_accuracies(lambda ids, _: int(ids[0] < ids[-1]))) < 0.72


@pytest.mark.parametrize("alone", [False, True])
def test_scaling_each_sequence_leaves_the_baseline_the_level_of_the_values(options, tmp_path, alone):
    """The class compares the largest value with 3, which needs level, spread and shape of a sequence together."""
    generator = np.random.default_rng(0)
    rows = [
        generator.normal(generator.normal(0, 2), generator.uniform(0.5, 2), generator.integers(4, 9)).tolist()
        for _ in range(900)
    ]
    labels = ["high" if max(row) > 3 else "low" for row in rows]
    table = {"x": rows, "other": [[len(row) % 3] * len(row) for row in rows], "label": labels}
    path = write(tmp_path / "t.parquet", table)
    recall = {}
    for scale in ("standard", "sequence"):
        fields = {"x": {"kind": "number", "scale": scale}, "other": "category"}
        dataset = prepare(options(train=path, label="label", fields=fields, split={"validation": 0.3}))
        if alone:
            recall[scale] = score_single_fields(dataset)["x"]
        else:
            recall[scale] = metrics_of(score_baseline(dataset)[0], dataset.positive)["validation"].recall
    assert recall["sequence"] >= recall["standard"] - 0.01 > 0.96


def noisy_split(units, copies, seed):
    """Rows of 30 channels, of which the first one tells the label a little, each unit of rows `copies` times."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(generator.integers(0, 2, units), copies)
    values = np.repeat(generator.normal(size=(units, 30)), copies, axis=0)
    values[:, 0] += labels
    offsets, rows = np.arange(len(labels) + 1), np.arange(len(labels))
    fields = {"v": values.astype(np.float32)}
    groups = np.repeat(np.arange(units), copies)
    return Split(Ragged(offsets, fields), labels, pa.array(rows.astype(str)), rows, groups=groups)


@pytest.mark.parametrize("copies", [1, 4])
def test_logistic_regression_does_not_overfit_many_channels(copies):
    """Copies of a row are left out together, else they would ask for no penalty at all."""
    splits = {"train": noisy_split(80, copies, 0), "test": noisy_split(1000, 1, 1)}
    found = fit_baseline(splits, [{"name": "v", "kind": "number", "width": 30}], 2)["logistic regression"]["test"]
    loss = -np.log(found[np.arange(1000), splits["test"].labels]).mean()
    assert loss < 0.67, "0.693 is that of a coin"


def test_a_class_that_train_lacks_has_probability_0():
    train = make_split(60, lambda ids, _: int(ids[0] == 1), 0)
    test = make_split(30, lambda ids, _: 2, 1)
    baseline = fit_baseline({"train": train, "test": test}, SPECS, 3)
    for by_split in baseline.values():
        probabilities = by_split["test"]
        assert probabilities.shape == (30, 3) and (probabilities[:, 2] == 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("max_tokens", [1, 57, 10**6])
def test_a_sample_has_complete_rows_in_their_order(max_tokens):
    split = make_split(40, lambda ids, _: 0, 2)
    sample = sample_split(split, max_tokens, 0)
    assert (np.diff(sample.row_numbers) > 0).all() and len(sample.sequences) >= 1
    assert sample.sequences.offsets[-1] <= max(max_tokens, 8)
    again = take(split.sequences, sample.row_numbers)
    for name, values in sample.sequences.fields.items():
        np.testing.assert_array_equal(values, again.fields[name])


def test_the_model_to_beat_is_chosen_by_the_deciding_metric_on_validation():
    labels = np.array([0] * 60 + [1] * 20)
    sure = np.where(labels == 1, 0.45, 0.02)  # ranks all, at a high loss
    sure[:3] = 0.4
    careful = np.where(labels == 1, 0.8, 0.1)
    careful[:3] = 0.9  # three false alerts at the top
    models = {
        name: {"validation": classification_metrics(labels, np.stack([1 - p, p], axis=1), ["no", "yes"], "yes")}
        for name, p in (("ranks best", sure), ("loses least", careful))
    }
    losses = {name: by_split["validation"].loss for name, by_split in models.items()}
    assert losses["loses least"] < losses["ranks best"]
    assert best_model(models, "average_precision") == "ranks best"
    assert models["ranks best"]["validation"].value("average_precision") == 1
    assert best_model(models, "accuracy") == "loses least"
