"""The best checkpoint follows the smoothed monitor, in runs that are resumed too."""

import numpy as np
import pytest
import torch

from seqclf.training.best_epoch import checkpoints, early_stopping
from seqclf.training.resume import RECENT
from seqclf.training.smoothed_monitor import LOWEST, SmoothedMonitor, epoch_value, smoothed_value, window_length
from seqclf.training.training_log import EpochRecord

from .conftest import QUIET, StopAfter

pytestmark = QUIET
EPOCHS = 30  # from this number of epochs on, three validations are averaged
NOISY = {"optimizer": {"lr": 0.05}}


def trained(fit, module, folder, *more, checkpoint=None, said=None):
    record = EpochRecord(folder / "metrics.csv", lambda _, is_best: said is None or said.append(is_best))
    hooks = [early_stopping(EPOCHS), record, *checkpoints(folder), *more]
    fit(module, checkpoint, callbacks=hooks, max_epochs=EPOCHS, limit_train_batches=2)
    return record.history


def stored(folder, name):
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


@pytest.mark.parametrize("monitor", ["recall", "loss"])
def test_the_best_checkpoint_has_the_best_mean_of_three_validations(task, fit, tmp_path, monitor):
    said = []
    history = trained(fit, task(monitor=monitor, **NOISY), tmp_path, said=said)
    scores = [{name: row[f"validation/{name}"] for name in ("loss", monitor)} for row in history]
    values = [epoch_value(each, monitor) for each in scores]
    # Lightning compares the logged values in float32, in which means that differ by rounding are equal.
    means = np.float32([smoothed_value(values[: k + 1], 3) for k in range(EPOCHS)]).tolist()
    assert stored(tmp_path, "best")["epoch"] == int(np.argmax(means))
    assert said == [True, *(means[epoch] > max(means[:epoch]) for epoch in range(1, EPOCHS))]


@pytest.mark.parametrize("resumed_from", ["last", "best"])
def test_a_resumed_run_chooses_the_epoch_of_an_unbroken_one(task, fit, tmp_path, resumed_from):
    folders = [tmp_path / name for name in ("unbroken", "parts")]
    trained(fit, task(**NOISY), folders[0])
    trained(fit, task(**NOISY), folders[1], StopAfter(12))
    trained(fit, task(**NOISY, seed=0), folders[1], checkpoint=folders[1] / f"{resumed_from}.ckpt")
    for name in ("best", "last"):
        unbroken, parts = (stored(folder, name) for folder in folders)
        assert unbroken["epoch"] == parts["epoch"] and unbroken[RECENT] == parts[RECENT]
        assert all(torch.equal(unbroken["state_dict"][key], parts["state_dict"][key]) for key in parts["state_dict"])
    assert len(stored(folders[0], "last")[RECENT]) == 3


def test_a_validation_that_is_repeated_counts_once_and_an_undefined_one_not_at_all():
    monitor, steps = SmoothedMonitor("auroc"), iter([10, 20, 20, 30, 40])

    def value(auroc=None):
        scores = {"loss": 0.0} if auroc is None else {"loss": 0.0, "auroc": auroc}
        return monitor.add(scores, 25 if auroc is None else next(steps), window_length(EPOCHS))

    assert [value(0.2), value(0.9), value(0.4)] == pytest.approx([0.2, 0.55, 0.3]), "step 20 is validated twice"
    assert value() == LOWEST, "it is never the best"
    assert [value(0.6), value(0.8)] == pytest.approx([0.4, 0.6])
