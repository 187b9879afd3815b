"""`batching.max_tokens=auto`: memory of a step, measured on a copy, and the number that a run keeps."""

import copy

import lightning.pytorch as pl
import numpy as np
import torch

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.training.module import SequenceTask
from seqclf.training.step_memory import StepMemory

AUTO = {"max_tokens": "auto"}


def saved(trainer, path):
    trainer.save_checkpoint(path)
    return torch.load(path, weights_only=True)


def test_measuring_leaves_training_as_it_is(task, fit):
    torch.manual_seed(7)
    measured = task()
    fit(measured, max_epochs=2, batching=AUTO)  # 9 rows of any length fit
    given = task()
    fit(given, max_epochs=2, batching={"max_tokens": 9 * 20})
    for name, weight in given.state_dict().items():
        assert torch.equal(weight, measured.state_dict()[name]), name


def test_the_memory_grows_with_the_batch(task, random_split):
    module = task(model={"hidden_size": 64, "embedding_size": 64})
    module.trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    memory = StepMemory(module)
    batches = SequenceDataModule({"train": random_split(4000, 1)}, seed=0, max_tokens=10**6)
    dataset = batches.train_dataloader().dataset
    before = torch.random.get_rng_state(), copy.deepcopy(module.state_dict())
    small, large = (memory(dataset[np.arange(rows)]) for rows in (400, 4000))
    assert large > 3 * small > 0
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert all(torch.equal(weight, before[1][name]) for name, weight in module.state_dict().items())
    assert all(weight.grad is None for weight in module.parameters())


def test_a_resumed_run_keeps_the_number(task, fit, tmp_path, monkeypatch):
    """Rows of a step depend on the number, and another machine has other memory."""
    trainer = fit(task(), max_epochs=1, batching=AUTO)
    first = saved(trainer, tmp_path / "one.ckpt")[SequenceDataModule.__qualname__]["settings"]["batching.max_tokens"]
    assert first == 9 * 19
    state = torch.load(tmp_path / "one.ckpt", weights_only=True)
    state[SequenceDataModule.__qualname__]["settings"]["batching.max_tokens"] = 57
    torch.save(state, tmp_path / "other.ckpt")
    monkeypatch.setattr(SequenceTask, "step_memory", None)  # would be called
    trainer = fit(task(), max_epochs=2, batching=AUTO, checkpoint=tmp_path / "other.ckpt")
    assert trainer.datamodule.max_tokens() == 57
    lengths = trainer.datamodule.splits["train"].sequences.lengths
    costs = [len(rows) * lengths[rows].max() for rows in trainer.datamodule.train_dataloader().sampler.batches]
    assert max(costs) <= 57


def test_the_loss_of_memory_is_met_by_a_smaller_budget(task, fit, monkeypatch):
    step = StepMemory._step

    def limited(self, batch):
        if batch.host_lengths.max() * len(batch.host_lengths) > 100:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        step(self, batch)

    monkeypatch.setattr(StepMemory, "_step", limited)
    trainer = fit(task(), max_epochs=1, batching=AUTO)
    assert trainer.datamodule.max_tokens() <= 100


def test_without_a_training_rows_alone_limit_a_batch(splits):
    batches = SequenceDataModule(splits, max_tokens="auto", max_sequences=8)
    assert batches.max_tokens() == 8 * int(splits["train"].sequences.lengths.max())
    assert "batching.max_tokens" not in batches.settings()
