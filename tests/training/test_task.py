"""The task: optimizer, choice of the best epoch, ensembles, checkpoint."""

import copy
import itertools
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.runs.row_outputs import predict_outputs
from seqclf.training.checkpoint import read_checkpoint
from seqclf.training.smoothed_monitor import LOWEST, MONITORED

from .conftest import QUIET, SILENT

pytestmark = QUIET


def test_only_matrices_are_decayed(task):
    module = task()
    module.trainer = SimpleNamespace(estimated_stepping_batches=10, precision="32-true", callbacks=[])
    decayed, free = module.configure_optimizers()["optimizer"].param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    names = {id(weight): name for name, weight in module.model.named_parameters()}
    assert all(names[id(weight)].split(".")[-1].startswith("weight") for weight in decayed["params"])
    assert {weight.ndim for weight in free["params"]} == {1}
    grouped = [id(weight) for group in (decayed, free) for weight in group["params"]]
    assert sorted(grouped) == sorted(names), "every weight is in one group"


@pytest.mark.parametrize(("precision", "fused"), [("32-true", True), ("bf16-mixed", None)])
def test_updates_are_fused_where_lightning_can_clip_them(task, fit, precision, fused):
    module = task(optimizer={"_target_": "torch.optim.AdamW", "lr": 0.01, "fused": True})
    before = {name: weight.clone() for name, weight in module.model.named_parameters()}
    fit(module, max_epochs=1, precision=precision, gradient_clip_val=1.0, enable_checkpointing=False)
    assert module.trainer.optimizers[0].defaults["fused"] is fused
    assert all(not torch.equal(weight, before[name]) for name, weight in module.model.named_parameters())


def test_weight_decay_reaches_the_matrices_and_is_refused_where_the_optimizer_has_none(task):
    optimizer, _ = task(optimizer={"_target_": "torch.optim.NAdam", "weight_decay": 0.2, "fused": True}).make_optimizer(
        10
    )
    assert isinstance(optimizer, torch.optim.NAdam), "which cannot be fused"
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    with pytest.raises(InputError, match=r"^optimizer\.weight_decay: no such argument of Rprop; remove it$"):
        task(optimizer={"_target_": "torch.optim.Rprop", "weight_decay": 0.2}).make_optimizer(10)


def monitored(module, monkeypatch, right, of, loss):
    """Return the monitored value after a validation in which `right` of `of` rows are right."""
    logged = {}
    fitting = {"state": SimpleNamespace(fn="fit"), "loggers": [], "current_epoch": 0, "check_val_every_n_epoch": 1}
    module.trainer = SimpleNamespace(sanity_checking=False, global_step=0, max_epochs=1, **fitting)
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    monkeypatch.setattr(module, "log_dict", lambda values, **_: logged.update(values))
    predicted = torch.nn.functional.one_hot(torch.tensor([0] * right + [1] * (of - right)), 3).float()
    labels = torch.zeros(of, dtype=torch.int64)
    module.evaluation_metrics.update(predicted, labels, torch.tensor(loss))
    module.on_validation_epoch_end()
    return logged[MONITORED]


@pytest.mark.parametrize("monitor", ["recall", "accuracy"])
def test_among_equal_epochs_the_lower_loss_is_best(task, monkeypatch, monitor):
    value = {
        (right, loss): monitored(task(monitor=monitor), monkeypatch, right, 1000, loss)
        for right in (990, 991)
        for loss in (0.01, 0.5, 900.0)
    }
    for right in (990, 991):
        assert value[right, 0.01] > value[right, 0.5] > value[right, 900.0]
    assert value[991, 900.0] > value[990, 0.01], "one more right row outweighs any loss"


def test_the_ranking_is_that_of_the_last_epochs_rows_without_those_of_the_sanity_check(task, fit, batches):
    module = task(monitor="auroc")
    fit(module, max_epochs=2, num_sanity_val_steps=1)
    logits = predict_outputs(module, batches.evaluation_loader("validation"))["logits"]
    labels = batches.splits["validation"].labels
    each = [roc_auc_score(labels == code, softmax(logits)[:, code]) for code in range(3)]
    assert module.epoch_scores["validation"].scores["auroc"] == pytest.approx(np.mean(each), abs=1e-6)
    assert float(module.trainer.callback_metrics[MONITORED]) == pytest.approx(np.mean(each), abs=1e-3)


def test_an_epoch_without_a_defined_ranking_is_never_the_best(task, monkeypatch):
    module = task(monitor="average_precision")
    value = monitored(module, monkeypatch, right=10, of=10, loss=0.1)
    assert value <= LOWEST, "all rows are of one class"
    scores = module.epoch_scores["validation"].scores
    assert "recall" in scores and "average_precision" not in scores


def test_rows_of_many_classes_are_stored_only_where_their_ranking_is_monitored(task):
    dataset = {"classes": [str(code) for code in range(60)], "class_counts": [1] * 60}
    assert task(dataset=dataset).evaluation_metrics.ranking is None
    assert task(dataset=dataset, monitor="auroc").evaluation_metrics.ranking is not None


def test_a_loss_that_is_not_finite_is_refused_with_advice(task, monkeypatch):
    with pytest.raises(InputError, match=r"loss of epoch .* not finite; lower optimizer\.lr \(now 0\.01\)"):
        monitored(task(), monkeypatch, 5, 10, float("nan"))


def test_members_start_from_different_weights(task):
    members = task(model={"members": 3}).model.members
    assert len(members) == 3
    for one, other in itertools.combinations(members, 2):
        assert not torch.equal(one.output.weight, other.output.weight)


@pytest.mark.parametrize(
    ("optimizer", "clipped"), [({}, "norm"), ({"_target_": "torch.optim.SGD", "lr": 0.1}, "value")], ids=str
)
def test_each_member_learns_as_it_would_alone(task, fit, optimizer, clipped):
    together, alone = task(model={"members": 3, **SILENT}, optimizer=optimizer), task(model=SILENT, optimizer=optimizer)
    begun = copy.deepcopy(together.model.members[1].state_dict())
    alone.model.load_state_dict(begun)
    for module in (together, alone):
        limit = {"norm": 0.3, "value": 0.01}[clipped]
        fit(module, max_epochs=3, gradient_clip_val=limit, gradient_clip_algorithm=clipped)
    for name, weight in alone.model.state_dict().items():
        assert not torch.equal(weight, begun[name])
        torch.testing.assert_close(together.model.members[1].state_dict()[name], weight, atol=1e-6, rtol=1e-5)


def test_the_scores_of_an_ensemble_are_those_of_its_vote(task, batches):
    module = task(model={"members": 5, **SILENT})
    batch = next(iter(batches.evaluation_loader("train")))
    each = torch.stack([member(batch.fields, batch.lengths, batch.host_lengths) for member in module.model.members])
    mean = each.softmax(dim=-1).mean(dim=0)
    assert not torch.equal(mean.argmax(dim=-1), each[0].argmax(dim=-1)), "else one member decides the vote"
    loss = torch.nn.functional.nll_loss(mean.log(), batch.labels)
    right = (mean.argmax(dim=-1) == batch.labels).float().mean()
    for train, step, metrics in (
        (True, module.training_step, module.train_metrics),
        (False, module.validation_step, module.evaluation_metrics),
    ):
        module.train(train)
        step(batch, 0)
        scores = metrics.compute().scores
        assert scores["accuracy"] == pytest.approx(right.item())
        assert scores["loss"] == pytest.approx(loss.item(), abs=1e-6)
    predicted = module.evaluation_metrics.compute().confusion.sum(axis=0)
    assert predicted.tolist() == mean.argmax(dim=-1).bincount(minlength=3).tolist()


@pytest.mark.slow
def test_a_checkpoint_loads_and_defaults_are_found_without_hydra(task, fit, tmp_path):
    path = tmp_path / "task.ckpt"
    fit(task(), max_epochs=1).save_checkpoint(path)
    script = (
        f"import sys, seqclf; task = seqclf.load_task({str(path)!r}); "
        "seqclf.SequenceTask(task.hparams['dataset']); seqclf.SequenceDataModule({}); "
        "assert not {'hydra', 'omegaconf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_predictions_are_in_the_order_of_the_split(task, batches):
    module = task()
    split = batches.splits["validation"]
    logits = predict_outputs(module, batches.evaluation_loader("validation"))["logits"]
    for row in (0, 13, 30):
        start, stop = split.sequences.offsets[row : row + 2]
        fields = {name: torch.from_numpy(values[None, start:stop]) for name, values in split.sequences.fields.items()}
        with torch.no_grad():
            alone = module.model(fields, torch.tensor([stop - start]), np.array([stop - start]))
        np.testing.assert_allclose(logits[row], alone[0], atol=1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"not a checkpoint", "is not a seqclf checkpoint"),
        ({"state_dict": {}}, r"is not a seqclf checkpoint; give RUN/model\.ckpt"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "some.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(InputError, match=rf"checkpoint=.*some\.ckpt: .*{message}"):
        read_checkpoint(path)
