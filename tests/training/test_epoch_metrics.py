"""Scores of an epoch against scikit-learn: batches of unequal sizes, absent classes, one class, two processes.

Metrics of one's own are those of docs/extending.md and of torchmetrics.
"""

import io
import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics
from support.installed_package import documented_example, install_package
from torch import distributed, multiprocessing
from torch.nn import functional

from seqclf import InputError
from seqclf.batching.batches import Batch
from seqclf.training.epoch_metrics import EpochMetrics, EvaluationMetrics, epoch_scores
from seqclf.training.own_metrics import OwnMetrics, resolve_metrics

# Truth and predictions of four classes: all of them, some absent as truth or as prediction, a single one.
SPLITS = {"all": [0, 1, 2, 3], "one is never true": [0, 1, 3], "two are never true": [1, 2], "one class": [2]}
SIZES = [[1] * 200, [150, 3, 47]]


def draw(present, rows=200, classes=4, seed=0):
    """Labels among `present`, and logits that are right more often than not and rarely predict class 3."""
    generator = np.random.default_rng(seed)
    labels = np.sort(generator.choice(present, rows))
    logits = generator.standard_normal((rows, classes)) + 1.5 * np.eye(classes)[labels]
    return torch.from_numpy(labels), torch.from_numpy(logits.astype(np.float32))


def softmax(logits):
    return logits.double().softmax(dim=-1).numpy()


def feed(target, labels, logits, sizes):
    for rows in torch.arange(len(labels)).split(sizes):
        target.update(logits[rows], labels[rows], functional.cross_entropy(logits[rows], labels[rows]))
    return target


def expected_scores(labels, logits):
    """Loss, accuracy and macro scores as scikit-learn computes them."""
    predicted = logits.argmax(dim=-1).numpy()
    with warnings.catch_warnings():  # scikit-learn warns where a ratio has no denominator; it counts as 0
        warnings.simplefilter("ignore")
        averages = metrics.precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)
        recall = metrics.balanced_accuracy_score(labels, predicted)  # over the classes that have rows
    return {
        "loss": metrics.log_loss(labels, softmax(logits), labels=range(logits.shape[1])),
        "accuracy": metrics.accuracy_score(labels, predicted),
        **dict(zip(("precision", "recall", "f1"), averages[:3], strict=True)),
        "recall": recall,
    }


def expected_ranking(labels, logits, classes):
    """Average precision and AUROC, means over `classes`, each against the rest."""
    scores = {"average_precision": metrics.average_precision_score, "auroc": metrics.roc_auc_score}
    return {
        name: np.mean([score(labels == code, softmax(logits)[:, code]) for code in classes])
        for name, score in scores.items()
    }


@pytest.mark.parametrize("sizes", SIZES, ids=len)
@pytest.mark.parametrize("present", SPLITS.values(), ids=SPLITS)
def test_scores_are_those_of_scikit_learn(present, sizes):
    labels, logits = draw(present)
    train = epoch_scores(feed(EpochMetrics(4), labels, logits, sizes))
    evaluated = epoch_scores(feed(EvaluationMetrics(4, ranked=True), labels, logits, sizes))
    expected = expected_scores(labels, logits)
    assert train.scores == pytest.approx(expected, rel=1e-6)
    ranking = expected_ranking(labels, logits, present) if len(present) > 1 else {}
    assert evaluated.scores == pytest.approx({**expected, **ranking}, rel=1e-6), "not defined where one class occurs"
    for result in (train, evaluated):
        assert result.support.tolist() == np.bincount(labels, minlength=4).tolist()
    confusion = metrics.confusion_matrix(labels, logits.argmax(dim=-1), labels=range(4))
    np.testing.assert_array_equal(evaluated.confusion, confusion)
    recall = np.diag(confusion) / np.maximum(1, confusion.sum(axis=1))
    np.testing.assert_allclose(evaluated.recall_by_class, recall, rtol=1e-6)


@pytest.mark.parametrize("positive", [0, 1])
def test_the_ranking_of_two_classes_is_that_of_the_positive_one(positive):
    labels, logits = draw([0, 1], classes=2)
    result = feed(EvaluationMetrics(2, ranked=True, positive=positive), labels, logits, [90, 110]).compute()
    expected = {**expected_scores(labels, logits), **expected_ranking(labels, logits, [positive])}
    assert result.scores == pytest.approx(expected, rel=1e-6)


def test_logits_are_ranked_by_probability_whatever_their_range():
    """AUROC takes values between 0 and 1 for probabilities, batch by batch, and puts others through a softmax."""
    labels, logits = draw([0, 1, 2, 3])
    logits[:100] = logits[:100].sigmoid()  # a batch of logits that look like probabilities
    result = feed(EvaluationMetrics(4, ranked=True), labels, logits, [100, 100]).compute()
    expected = expected_ranking(labels, logits, range(4))
    assert {name: result.scores[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_rows_of_which_the_model_is_certain_are_not_tied():
    """In float32 every one of these probabilities would be 1."""
    logits = torch.stack([torch.linspace(20, 30, 50), torch.zeros(50)], dim=1)
    labels = (torch.arange(50) < 25).long()
    assert (logits.softmax(dim=-1)[:, 0] == 1).all()
    result = feed(EvaluationMetrics(2, ranked=True, positive=0), labels, logits, [50]).compute()
    assert result.scores["auroc"] == pytest.approx(1.0) == result.scores["average_precision"]


def test_a_reset_starts_anew_and_an_epoch_without_rows_scores_zero():
    labels, logits = draw([0, 1, 2, 3])
    target = EvaluationMetrics(4, ranked=True)
    epoch_scores(feed(target, labels, logits, [200]))
    result = epoch_scores(target)
    assert set(result.scores.values()) == {0.0} and result.support.sum() == result.confusion.sum() == 0
    assert epoch_scores(feed(target, *draw([1, 2]), [200])).scores == pytest.approx(
        epoch_scores(feed(EvaluationMetrics(4, ranked=True), *draw([1, 2]), [200])).scores
    )


def test_an_update_keeps_no_graph():
    logits = torch.zeros(3, 2, requires_grad=True)
    for target in (EpochMetrics(2), EvaluationMetrics(2, ranked=True)):
        target.update(logits, torch.tensor([0, 1, 1]), logits.sum())
        states = [value for metric in target.modules() for value in getattr(metric, "metric_state", {}).values()]
        tensors = [tensor for state in states for tensor in (state if isinstance(state, list) else [state])]
        assert tensors and not any(getattr(tensor, "requires_grad", False) for tensor in tensors)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_resumed_epoch_counts_the_steps_before_its_checkpoint(cut):
    """Also where the checkpoint was written after the last step, so that scores are computed without an update."""
    labels, logits = draw([0, 1, 3])
    batches = torch.arange(200).split([7, 93, 64, 36])
    before, unbroken = EpochMetrics(4), EpochMetrics(4)
    for target, parts in ((before, batches[:cut]), (unbroken, batches)):
        for rows in parts:
            feed(target, labels[rows], logits[rows], len(rows))
    file = io.BytesIO()
    torch.save(before.state_dict(), file)
    file.seek(0)
    resumed = EpochMetrics(4)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for rows in batches[cut:]:
        feed(resumed, labels[rows], logits[rows], len(rows))
    result, expected = epoch_scores(resumed), epoch_scores(unbroken)
    assert result.scores == expected.scores
    np.testing.assert_array_equal(result.support, expected.support)


def test_the_loss_does_not_depend_on_the_order_of_its_batches():
    """Resumed runs add it up in other portions, and ranks in another order."""
    generator = torch.Generator().manual_seed(0)
    losses, sizes = torch.rand(500, generator=generator), torch.randint(1, 40, (500,), generator=generator)
    found = set()
    for order in (torch.arange(500), torch.arange(499, -1, -1), torch.randperm(500, generator=generator)):
        target = EpochMetrics(2)
        for position in order.tolist():
            rows = int(sizes[position])
            target.update(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.int64), losses[position])
        found.add(target.compute().scores["loss"])
    expected = (losses.double() @ sizes.double() / sizes.sum()).float()
    assert found == {float(expected)}


def test_the_state_of_an_interrupted_evaluation_can_be_read():
    labels, logits = draw([0, 1, 3])
    target = EvaluationMetrics(4, ranked=True)
    with torch.inference_mode():
        target.reset()
        feed(target, labels, logits, [150, 50])
    assert not target.state_dict()
    with torch.inference_mode():
        assert epoch_scores(target).support.sum() == 200


SHARES = (slice(0, 130), slice(130, 200))  # rows of each process


def score_share(rank, folder):
    """Score one process's rows, in two batches, and write the result to a file."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    labels, logits = draw([0, 1, 3])
    results = []
    for target in (EpochMetrics(4), EvaluationMetrics(4, ranked=True), EvaluationMetrics(4, ranked=True, positive=1)):
        share = labels[SHARES[rank]], logits[SHARES[rank]]
        results.append(epoch_scores(feed(target, *share, [30, len(share[0]) - 30]))._asdict())
    torch.save([result["scores"] for result in results], f"{folder}/{rank}.pt")
    np.save(f"{folder}/{rank}.npy", results[1]["confusion"])
    distributed.destroy_process_group()


def test_every_process_scores_the_rows_of_all(tmp_path):
    # Forks, because two new processes would spend seconds on imports.
    multiprocessing.start_processes(score_share, (tmp_path,), nprocs=2, start_method="fork")
    labels, logits = draw([0, 1, 3])
    expected = expected_scores(labels, logits)
    for rank in range(2):
        train, ranked, positive = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert train == pytest.approx(expected, rel=1e-6), "means over rows, not over processes or batches"
        assert ranked == pytest.approx({**expected, **expected_ranking(labels, logits, [0, 1, 3])}, rel=1e-6)
        assert positive == pytest.approx({**expected, **expected_ranking(labels, logits, [1])}, rel=1e-6)
        confusion = metrics.confusion_matrix(labels, logits.argmax(dim=-1), labels=range(4))
        np.testing.assert_array_equal(np.load(tmp_path / f"{rank}.npy"), confusion)


COSTS = [[0.0, 1.0, 2.0, 3.0], [5.0, 0.0, 1.5, 1.0], [9.0, 1.0, 0.0, 1.0], [2.0, 3.0, 1.0, 0.0]]
F2 = {"_target_": "torchmetrics.classification.MulticlassFBetaScore", "num_classes": 4, "beta": 2.0, "name": "f2"}


@pytest.fixture
def cost(monkeypatch, tmp_path):
    """`cost(costs=…)`: settings of the metric of docs/extending.md, whose package is installed."""
    install_package(monkeypatch, tmp_path, "costpackage", {"metrics.py": documented_example("A metric")})
    return lambda costs=COSTS: {"_target_": "costpackage.metrics.ExpectedCost", "costs": costs}


def expected_cost(labels, logits, costs=COSTS):
    actions = (softmax(logits) @ np.array(costs)).argmin(axis=1)
    return np.array(costs)[labels.numpy(), actions].mean()


def give(own, rows, labels, logits, weight=1.0):
    lengths = np.ones(len(rows), np.int64)
    own.update(logits[rows], Batch({}, torch.from_numpy(lengths), labels[rows], lengths, rows.numpy(), weight))


def give_share(rank, own, folder):
    """Give each process rows of its own, and the first a batch without weight; the third process has no row."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
    labels, logits = draw([0, 1, 2, 3])
    give(own, torch.arange(1), labels, logits, weight=0.0)
    for part in () if rank == 2 else torch.arange(rank, 200, 2).split(30):
        give(own, part, labels, logits)
    torch.save(own.compute(), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_own_metrics_are_those_of_all_rows_in_any_batches_and_processes(cost, tmp_path):
    labels, logits = draw([0, 1, 2, 3])
    blocks, results = resolve_metrics([cost(), F2]), []
    for order in (torch.arange(200).split(200), torch.randperm(200).split(7)):
        own = OwnMetrics(blocks, 4)
        for rows in order:
            give(own, rows, labels, logits)
        results.append(own.compute())
        own.reset()
        give(own, torch.arange(50), labels, logits)
        assert own.compute()["ExpectedCost"] == pytest.approx(expected_cost(labels[:50], logits[:50]))
    assert results[0] == results[1], "to the bit"
    assert results[0]["ExpectedCost"] == pytest.approx(expected_cost(labels, logits))
    beta = metrics.fbeta_score(labels, logits.argmax(dim=-1), beta=2, average="macro")
    assert results[0]["f2"] == pytest.approx(beta)
    multiprocessing.start_processes(give_share, (OwnMetrics(blocks, 4), tmp_path), nprocs=3, start_method="fork")
    assert all(torch.load(tmp_path / f"{rank}.pt") == results[0] for rank in range(3)), "to the bit"


def test_with_two_classes_a_metric_reads_both_or_the_positive_label(cost):
    labels, logits = draw([0, 1], classes=2)
    costs = [[0.0, 1.0], [9.0, 0.0]]
    binary = {"_target_": "torchmetrics.classification.BinaryFBetaScore", "beta": 2.0}
    own = OwnMetrics(resolve_metrics([cost(costs), binary]), 2, positive=0)
    values = own.values(logits.softmax(dim=-1), labels)
    beta = metrics.fbeta_score(labels, logits.argmax(dim=-1), beta=2, pos_label=0)
    assert values == pytest.approx({"ExpectedCost": expected_cost(labels, logits, costs), "BinaryFBetaScore": beta})
    assert own.lower_is_better("ExpectedCost") and not own.lower_is_better("BinaryFBetaScore")


OTHERS = """
from torchmetrics.classification import MulticlassRecall

class Undirected(MulticlassRecall):
    higher_is_better = None

class Undefined(MulticlassRecall):
    def compute(self):
        return super().compute() / 0 * 0

class Expected(MulticlassRecall):
    def update(self, probabilities, labels):
        self.ratio = probabilities[:, 1].sum() / labels.sum()

    def compute(self):
        return self.ratio
"""


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"_target_": "otherpackage.Undirected", "num_classes": 4}, "monitor=Undirected"),
        ({"_target_": "otherpackage.Undefined", "num_classes": 4}, "metrics[0]._target_=otherpackage.Undefined"),
        ({"_target_": "otherpackage.Undirected", "num_classes": 3}, "metrics[0]._target_=otherpackage.Undirected"),
        ({**F2, "average": None}, f"metrics[0]._target_={F2['_target_']}"),
        ({**F2, "beta": -1.0}, f"metrics[0]._target_={F2['_target_']}"),
        ({**F2, "delta": 1}, f"metrics[0]._target_={F2['_target_']}"),
        ({**F2, "name": "Recall"}, "metrics[0]"),
        ({"_target_": "torch.nn.ReLU"}, "metrics[0]._target_=torch.nn.ReLU"),
        ({"_target_": "torchmetrics.classification.BinaryF1Score"}, "metrics[0]._target_=torchmetrics."),
    ],
)
def test_an_own_metric_that_cannot_be_computed_is_one_line(monkeypatch, tmp_path, settings, place):
    install_package(monkeypatch, tmp_path, "otherpackage", {"__init__.py": OTHERS})
    with pytest.raises(InputError) as error:
        OwnMetrics(resolve_metrics([settings]), 4).lower_is_better("Undirected")
    assert error.value.where.startswith(place)


def test_an_own_metric_that_is_not_finite_is_left_out(monkeypatch, tmp_path):
    install_package(monkeypatch, tmp_path, "otherpackage", {"__init__.py": OTHERS})
    own = OwnMetrics(resolve_metrics([{"_target_": "otherpackage.Expected", "num_classes": 2}]), 2)
    (none, logits), (labels, others) = draw([0], classes=2), draw([0, 1], classes=2)
    assert own.values(logits.softmax(dim=-1), none) == {}, "there is no row of class 1"
    expected = softmax(others)[:, 1].sum() / labels.sum().item()
    assert own.values(others.softmax(dim=-1), labels) == pytest.approx({"Expected": expected})
