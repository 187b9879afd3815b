"""Without `monitor`, best.ckpt holds the averaged weights of the last step."""

import pytest
import torch

from seqclf.training.best_epoch import checkpoints
from seqclf.training.smoothed_monitor import MONITORED
from seqclf.training.training_log import EpochRecord

from .conftest import QUIET

pytestmark = QUIET
LIMITS = [
    {"max_epochs": 3},
    {"max_epochs": -1, "max_steps": 10},
    {"max_epochs": 3, "limit_val_batches": 0},
    {"max_epochs": 3, "accumulate_grad_batches": 2},
]


def trained(fit, module, folder, **settings):
    record, hooks = EpochRecord(folder / "metrics.csv", lambda *_: None), checkpoints(folder, monitor=None)
    trainer = fit(module, callbacks=[record, *hooks], **settings)
    return trainer, hooks[0], record


@pytest.mark.parametrize(("limits", "average"), [*((limits, 0.9) for limits in LIMITS), (LIMITS[0], None)], ids=str)
def test_the_best_checkpoint_holds_the_last_step(task, fit, tmp_path, limits, average):
    module = task(monitor=None, optimizer={"average": average})
    trainer, best, _ = trained(fit, module, tmp_path, **limits)
    saved = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert saved["global_step"] == trainer.global_step and best.best_model_path == str(tmp_path / "best.ckpt")
    for name, weight in module.model.state_dict().items():
        assert torch.equal(saved["state_dict"][f"model.{name}"], weight), name
    assert MONITORED not in trainer.callback_metrics
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["best.ckpt", "last.ckpt"]


@pytest.mark.parametrize("name", ["best", "last"])
@pytest.mark.parametrize("limits", [{"max_epochs": 2}, {"max_epochs": 2, "limit_val_batches": 0}])
def test_a_completed_run_goes_on_from_either_checkpoint(task, fit, tmp_path, name, limits):
    settings = {key: value for key, value in limits.items() if key == "limit_val_batches"}
    module, unbroken, resumed = (task(monitor=None, optimizer={"average": 0.9}) for _ in range(3))
    for each in (module, unbroken, resumed):
        each.scheduled_steps = 100
    trained(fit, module, tmp_path / "first", **{"max_epochs": -1, **limits})
    trained(fit, unbroken, tmp_path / "unbroken", **settings, max_epochs=4)
    folder, path = tmp_path / "second", tmp_path / "first" / f"{name}.ckpt"
    trainer, best, _ = trained(fit, resumed, folder, **settings, max_epochs=4, checkpoint=path)
    assert best.best_model_path == str(folder / "best.ckpt")
    assert torch.load(folder / "best.ckpt", weights_only=True)["global_step"] == trainer.global_step
    for key, weight in unbroken.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[key]), key


def test_each_validation_leaves_a_checkpoint_to_a_run_that_is_killed(task, fit, tmp_path):
    class Kill(EpochRecord):
        def on_train_batch_start(self, trainer, *_):
            if trainer.current_epoch == 2:
                raise ConnectionError

    hooks = [Kill(tmp_path / "metrics.csv", lambda *_: None), *checkpoints(tmp_path, monitor=None)]
    with pytest.raises(ConnectionError):
        fit(task(monitor=None), callbacks=hooks, max_epochs=3)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == 1
