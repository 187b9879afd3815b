"""Losses against the formulas of their papers, and class weights."""

import numpy as np
import pytest
import torch
import yaml
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight
from support.installed_package import documented_example, install_package
from torch.nn import functional

from seqclf.config.command_keys import default_settings
from seqclf.errors import InputError
from seqclf.training.check_targets import resolve_loss
from seqclf.training.losses import CrossEntropy, Focal, LogitAdjusted, build_loss, class_weights_of, weigh_classes
from seqclf.training.task import SequenceTask

CLASSES, COUNTS = ["calm", "odd", "wild"], [60, 30, 10]
LABELS = np.repeat([0, 1, 2], COUNTS)


def loss(class_weights=None, label_smoothing=0.0, kind=CrossEntropy, **options):
    if kind is not Focal:
        options["label_smoothing"] = label_smoothing
    return kind(CLASSES, COUNTS, class_weights=class_weights, **options)


def batch(rows=100):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 3, generator=generator), torch.from_numpy(LABELS[:rows])


def test_cross_entropy_is_the_log_loss():
    logits, labels = batch()
    assert float(loss()(logits, labels)) == pytest.approx(log_loss(labels, logits.softmax(1).numpy()), rel=1e-5)


def test_balanced_weights_are_those_of_sklearn():
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    assert loss("balanced").weights.tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("scheme", ["balanced", 0.5, {"wild": 5.0}, {"calm": 1, "odd": 2, "wild": 3}])
def test_weights_have_a_mean_of_one_over_the_training_rows(scheme):
    weights = loss(scheme).weights.numpy()
    assert weights[LABELS].mean() == pytest.approx(1.0)
    if isinstance(scheme, dict):
        raw = np.array([float(scheme.get(label, 1.0)) for label in CLASSES])
        np.testing.assert_allclose(weights / weights[0], raw / raw[0], rtol=1e-6)


def check(loss_settings):
    assert resolve_loss(loss_settings) == loss_settings


@pytest.mark.parametrize("name", ["cross_entropy", "focal", "logit_adjusted"])
def test_the_arguments_of_a_loss_are_those_of_its_config_and_no_other(name):
    settings = default_settings("loss", name)
    assert resolve_loss(settings) == settings
    for argument in settings.keys() - {"_target_"}:
        assert resolve_loss({key: value for key, value in settings.items() if key != argument}) == settings
        with pytest.raises(InputError, match=rf"loss\.{argument}s: no such argument of \w+; did you mean '{argument}'"):
            resolve_loss({**settings, f"{argument}s": 1.0})


@pytest.mark.parametrize("scheme", [None, "balanced", {"wild": 5.0}])
def test_the_weight_of_a_row_does_not_depend_on_its_batch_mates(scheme):
    """The loss of all rows is the mean over batches weighted by their sizes, which torch's `weight=` breaks."""
    logits, labels = batch()
    criterion = loss(scheme)
    parts = [(criterion(logits[rows], labels[rows]), len(rows)) for rows in torch.arange(100).split([97, 2, 1])]
    mean = sum(value * rows for value, rows in parts) / 100
    assert float(criterion(logits, labels)) == pytest.approx(float(mean), rel=1e-5)


def test_label_smoothing_is_that_of_torch():
    logits, labels = batch()
    expected = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(loss(label_smoothing=0.1)(logits, labels), expected)


@pytest.mark.parametrize("weights", [None, "balanced"])
@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_focal_loss_is_that_of_its_paper(gamma, weights):
    """Lin et al. 2017, equation 5: -alpha (1 - p)^gamma log p."""
    logits, labels = batch()
    criterion = loss(weights, kind=Focal, gamma=gamma)
    alpha = [1.0] * 3 if weights is None else criterion.weights.tolist()
    probabilities = [row.softmax(0)[k].item() for row, k in zip(logits.double(), labels, strict=True)]
    rows = [-alpha[k] * (1 - p) ** gamma * np.log(p) for p, k in zip(probabilities, labels.tolist(), strict=True)]
    assert float(criterion(logits, labels)) == pytest.approx(np.mean(rows), rel=1e-5)


def test_focal_loss_has_finite_gradients_where_a_row_is_certain():
    logits = torch.tensor([[200.0, 0.0, 0.0], [-200.0, 0.0, 0.0]], requires_grad=True)
    loss(kind=Focal, gamma=0.5)(logits, torch.tensor([0, 0])).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("tau", [0.0, 1.5])
def test_logit_adjusted_loss_is_that_of_its_paper(tau):
    """Menon et al. 2021, equation 10: log(1 + sum over y' != y of (share of y' / share of y)^tau exp(f_y' - f_y))."""
    logits, labels = batch()
    shares, rows = np.array(COUNTS) / 100, []
    for row, label in zip(logits.double().numpy(), labels.tolist(), strict=True):
        others = [k for k in range(3) if k != label]
        rows.append(np.log1p(sum((shares[k] / shares[label]) ** tau * np.exp(row[k] - row[label]) for k in others)))
    criterion = loss(kind=LogitAdjusted, tau=tau)
    assert float(criterion(logits, labels)) == pytest.approx(np.mean(rows), rel=1e-5)


@pytest.fixture
def generalized(monkeypatch, tmp_path):
    """Settings of the loss of docs/extending.md, whose package is installed."""
    install_package(monkeypatch, tmp_path, "mypackage", {"losses.py": documented_example("A loss")})
    return yaml.safe_load(documented_example("A loss", "yaml"))


def test_a_loss_of_another_package_is_checked_and_trained_from_its_yaml(generalized, task, fit):
    check(generalized)
    with pytest.raises(InputError, match=r"^loss.q=2: must be at most 1$"):
        check({**generalized, "q": 2})
    module = SequenceTask(**{**task(optimizer={"lr": 0.05}).hparams, "loss": generalized})
    losses = []
    module.on_train_epoch_end = lambda: losses.append(float(module.step_loss))
    fit(module, max_epochs=8)
    assert module.loss.q == 0.7 and losses[-1] < losses[0]
    logits = torch.randn(5, 3)
    module.loss.q = 1.0
    expected = 1 - logits.softmax(-1)[torch.arange(5), torch.tensor([0, 1, 2, 0, 1])].mean()
    torch.testing.assert_close(module.loss(logits, torch.tensor([0, 1, 2, 0, 1])), expected)


class Margin(torch.nn.Module):
    def __init__(self, margin, class_counts=None):
        super().__init__()
        self.margin, self.class_counts = margin, class_counts


def test_a_loss_of_another_package_gets_the_arguments_that_its_signature_has():
    built = build_loss({"_target_": f"{__name__}.Margin", "margin": 2.0}, CLASSES, COUNTS)
    assert (built.margin, built.class_counts) == (2.0, COUNTS)
    plain = build_loss({"_target_": "torch.nn.CrossEntropyLoss", "label_smoothing": 0.1}, CLASSES, COUNTS)
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    assert plain(logits, labels) == functional.cross_entropy(logits, labels, label_smoothing=0.1)


def test_what_is_fitted_beside_a_network_takes_classes_of_an_adjusted_loss_as_equally_frequent():
    adjusted = class_weights_of(LogitAdjusted(["a", "b"], class_counts=[90, 10]), 2)
    assert adjusted[1] / adjusted[0] == pytest.approx(9)
    assert class_weights_of(CrossEntropy(["a", "b"], class_counts=[90, 10]), 2).tolist() == [1, 1]


@pytest.mark.parametrize(("power", "ratio"), [(0, 1.0), (0.5, 6**0.5), (1, 6.0), ("balanced", 6.0)])
def test_powers_of_class_weights_lie_between_equal_and_balanced_ones(power, ratio):
    weights = weigh_classes(power, CLASSES, COUNTS)
    assert weights[2] / weights[0] == pytest.approx(ratio)


@pytest.mark.parametrize("value", [-0.1, 1.5, True, "half"])
def test_other_class_weights_are_refused(value):
    settings = {"_target_": "seqclf.training.losses.CrossEntropy", "class_weights": value}
    with pytest.raises(InputError, match=r"^loss.class_weights=.*: must be null, balanced, a number of 0 to 1 or "):
        resolve_loss(settings)
