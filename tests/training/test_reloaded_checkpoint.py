"""Weights that a checkpoint misses are found out by the score of the checkpoint that is loaded again."""

import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder, SequenceNetwork
from seqclf.runs.score import predict_logits
from seqclf.training.callbacks import checkpoints
from seqclf.training.custom_network_checks import check_reloaded
from seqclf.training.epoch_record import EpochRecord
from seqclf.training.module import load_task

HERE = __name__


class Hidden(SequenceEncoder):
    """An encoder whose layer is in a plain list, which PyTorch does not register."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.layers = [nn.Linear(input_size, hidden_size)]

    def forward(self, tokens, lengths, host_lengths):
        return self.layers[0](tokens), lengths, host_lengths


class Shared(Hidden):
    """Keeps a registered layer in a list too."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.registered = self.layers[0]


class WideOutput(SequenceNetwork):
    """Returns a logit too many for single sequences."""

    def __init__(self, fields, num_classes):
        super().__init__()
        self.linear = nn.Linear(2, num_classes + 1)

    def forward(self, fields, lengths, host_lengths):
        return self.linear(fields["value"][:, 0])


@pytest.mark.parametrize(("name", "lost"), [("Hidden", True), ("Shared", False)])
@pytest.mark.parametrize("interval", [None, 2])  # the latter validates inside epochs of five steps alone
def test_the_reloaded_checkpoint_has_the_score_of_its_validation(
    with_encoder, fit, batches, tmp_path, name, lost, interval
):
    record = EpochRecord(tmp_path / "metrics.csv", lambda *_: None)
    best, *_ = checkpoints(tmp_path)
    trained = with_encoder(f"{HERE}.{name}")
    trained.optimizer["lr"] = 0.1
    fit(trained, callbacks=[record, best], max_epochs=6, limit_train_batches=5, val_check_interval=interval)
    torch.manual_seed(5)
    loaded = load_task(best.best_model_path, trust=[HERE.partition(".")[0]])
    # A resumed run knows the losses of the run before.
    resumed = EpochRecord(tmp_path / "metrics.csv", lambda *_: None)
    resumed.load_state_dict(torch.load(best.best_model_path, weights_only=True)["callbacks"][record.state_key])
    losses = resumed.validation_losses
    ends = {row["step"] for row in record.history}
    assert loaded.trained_steps in losses and (loaded.trained_steps in ends) == (interval is None)
    if not lost:
        return check_reloaded(loaded, batches, losses)
    with pytest.raises(InputError) as error:
        check_reloaded(loaded, batches, losses)
    assert f"{losses[loaded.trained_steps]:.3g}" in error.value.problem and "nn.ModuleList" in error.value.remedy


def test_evaluation_refuses_logits_that_are_not_finite(task, batches):
    module = task()
    nn.init.constant_(module.model.output.bias, torch.nan)
    with pytest.raises(InputError) as error:
        predict_logits(module, batches.evaluation_loader("validation"))
    assert "31 of 31" in error.value.problem


def test_evaluation_refuses_logits_of_another_shape(with_model, batches):
    module = with_model({"_target_": f"{HERE}.WideOutput", "members": 1})
    batch = next(iter(batches.evaluation_loader("validation")))
    for run in (module.validation_step, module.predict_step):
        with pytest.raises(InputError) as error:
            run(batch, 0)
        assert str((len(batch.ids), 4)) in error.value.problem
    with pytest.raises(InputError):
        predict_logits(module, [batch])
