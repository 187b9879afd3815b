"""Batches and loaders as Lightning gets them."""

import os
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from seqclf.batching.batches import Batch
from seqclf.batching.datamodule import PlanSampler, SequenceDataModule
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split

SETTINGS = {
    "max_tokens": 100,
    "max_sequences": 6,
    "pool_batches": 3,
    "overhead": 2,
    "evaluation_factor": 4,
    "num_workers": 0,
    "seed": 7,
}


@pytest.fixture
def split() -> Split:
    generator = np.random.default_rng(3)
    lengths = generator.integers(1, 40, 90)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    fields = {
        "token": generator.integers(0, 30, offsets[-1]).astype(np.int32),
        "value": generator.standard_normal((offsets[-1], 3)).astype(np.float32),
    }
    ids = pa.array([f"row {row}" for row in range(90)])
    return Split(Ragged(offsets, fields), generator.integers(0, 4, 90), ids, np.arange(90))


@pytest.fixture
def module(split) -> SequenceDataModule:
    return SequenceDataModule({"train": split, "validation": split, "test": split}, **SETTINGS)


def trainer(**attributes) -> SimpleNamespace:
    """The attributes of a trainer that the DataModule reads."""
    defaults = {
        "world_size": 1,
        "global_rank": 0,
        "current_epoch": 0,
        "overfit_batches": 0.0,
        "training": False,
        "limit_val_batches": 1.0,
    }
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    return SimpleNamespace(**{"strategy": strategy, **defaults, **attributes})


def check_rows(batch: Batch, split: Split) -> None:
    """Assert that every row of a batch is the row of the split that `ids` names."""
    assert isinstance(batch, tuple) and hasattr(batch, "_fields"), "Lightning moves named tuples field by field"
    assert isinstance(batch.host_lengths, np.ndarray) and isinstance(batch.ids, np.ndarray)
    assert batch.lengths.dtype == batch.labels.dtype == batch.fields["token"].dtype == torch.int64
    assert batch.fields["value"].dtype == torch.float32
    assert batch.lengths.tolist() == batch.host_lengths.tolist()
    assert batch.fields["token"].shape[1] == batch.host_lengths.max()
    for index, row in enumerate(batch.ids):
        start, stop = split.sequences.offsets[row : row + 2]
        assert batch.lengths[index] == stop - start
        assert batch.labels[index] == split.labels[row]
        for name, tokens in split.sequences.fields.items():
            np.testing.assert_array_equal(batch.fields[name][index, : stop - start], tokens[start:stop])
            assert not batch.fields[name][index, stop - start :].any()


def test_training_batches_hold_every_row_once_within_the_limits(module, split):
    batches = list(module.train_dataloader())
    for batch in batches:
        check_rows(batch, split)
        assert len(batch.ids) <= 6
        assert len(batch.ids) * batch.host_lengths.max() <= 100 or len(batch.ids) == 1
    assert sorted(np.concatenate([batch.ids for batch in batches])) == list(range(90))


@pytest.mark.parametrize("kind", ["val_dataloader", "test_dataloader"])
def test_evaluation_batches_are_larger_and_sorted(module, split, kind):
    batches = list(getattr(module, kind)())
    for batch in batches:
        check_rows(batch, split)
        assert len(batch.ids) <= 24
        assert len(batch.ids) * batch.host_lengths.max() <= 400 or len(batch.ids) == 1
    ordered = np.concatenate([batch.host_lengths for batch in batches])
    assert (np.diff(ordered) <= 0).all()
    assert len(batches) < len(module.train_dataloader())


def test_workers_return_the_same_batches(split):
    without = SequenceDataModule({"train": split}, **SETTINGS)
    with_worker = SequenceDataModule({"train": split}, **{**SETTINGS, "num_workers": 1})
    for one, other in zip(without.train_dataloader(), with_worker.train_dataloader(), strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert torch.equal(one.fields["token"], other.fields["token"])
        check_rows(other, split)


@pytest.mark.parametrize("name", ["train_dataloader", "val_dataloader"])
def test_loaders_end_with_their_module_without_the_garbage_collector(split, name):
    module = SequenceDataModule({"train": split, "validation": split}, **{**SETTINGS, "num_workers": 1})
    assert sum(len(batch.ids) for batch in getattr(module, name)()) == len(split.labels)
    loader = weakref.ref(getattr(module, name)())
    del module
    assert loader() is None


def sampler(lengths, **ranks) -> PlanSampler:
    return PlanSampler(lengths, max_tokens=100, max_sequences=6, pool_batches=3, seed=7, **ranks)


def test_a_sampler_begins_at_its_first_batch_and_counts_all(split):
    lengths = split.sequences.lengths
    resumed, unbroken = sampler(lengths), sampler(lengths)
    for epoch in (3, 4):
        resumed.set_epoch(epoch)
        unbroken.set_epoch(epoch)
        resumed.first = 4
        assert len(resumed) == len(unbroken)
        assert [rows.tolist() for rows in resumed] == [rows.tolist() for rows in unbroken][4:]


@pytest.mark.parametrize("overfit_batches", [0.0, 2])
def test_lightning_does_not_replace_the_samplers(split, overfit_batches):
    module = SequenceDataModule({"train": split, "validation": split}, **SETTINGS)
    module.trainer = trainer(overfit_batches=overfit_batches)
    training, validation = module.train_dataloader().sampler, module.val_dataloader().sampler
    assert isinstance(training, DistributedSampler) and isinstance(validation, DistributedSampler)
    assert isinstance(training, SequentialSampler) is bool(overfit_batches)
    assert isinstance(validation, SequentialSampler)


@pytest.mark.parametrize(
    ("device", "num_workers", "threaded"), [("cpu", 0, False), ("cuda", 0, True), ("mps", 0, True), ("cuda", 1, False)]
)
def test_a_thread_gathers_batches_unless_the_cpu_trains(split, device, num_workers, threaded):
    module = SequenceDataModule({"train": split}, **{**SETTINGS, "num_workers": num_workers})
    module.trainer = trainer(strategy=SimpleNamespace(root_device=torch.device(device)))
    assert module.train_dataloader().threaded is threaded


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_epoch_that_ends_early_leaves_no_thread(split, num_workers, monkeypatch):
    before = threading.active_count()
    monkeypatch.setattr(SequenceDataModule, "_threaded", lambda self: self.batching.num_workers == 0)
    batches = iter(SequenceDataModule({"train": split}, **{**SETTINGS, "num_workers": num_workers}).train_dataloader())
    next(batches)
    if not num_workers:
        assert threading.active_count() > before
    batches.close()
    if not num_workers:
        assert threading.active_count() == before


def test_a_signal_to_the_process_group_does_not_reach_the_loader_processes(split):
    loader = SequenceDataModule({"train": split}, **{**SETTINGS, "num_workers": 1}).train_dataloader()
    batches = DataLoader.__iter__(loader)  # PyTorch's iterator, which knows its processes
    first = next(batches)
    assert os.getpgid(batches._workers[0].pid) != os.getpgrp()
    assert sum(len(batch.ids) for batch in [first, *batches]) == len(split.labels)


def test_each_pass_without_a_trainer_has_batches_of_its_own(module):
    passes = [[batch.ids.tolist() for batch in module.train_dataloader()] for _ in range(3)]
    assert passes[0] != passes[1] != passes[2] != passes[0]
    loader = module.train_dataloader()
    next(iter(loader))  # a pass that ends early counts too
    passes.append([batch.ids.tolist() for batch in loader])
    assert passes[3] not in passes[:3]
    for batches in passes:
        assert sorted(row for rows in batches for row in rows) == list(range(90))


@pytest.mark.parametrize("limit", [0.5, 3])
def test_a_limited_validation_reads_sequences_of_all_lengths(limit):
    lengths = np.random.default_rng(0).integers(1, 60, 600)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sequences = Ragged(offsets, {"token": np.ones(offsets[-1], np.int32)})
    split = Split(sequences, np.zeros(600, np.int64), pa.array(np.arange(600)), np.arange(600))
    module = SequenceDataModule({"train": split, "validation": split}, **{**SETTINGS, "max_sequences": None})
    module.trainer = trainer(limit_val_batches=limit)
    loader = module.val_dataloader()
    read = list(loader)[: limit if isinstance(limit, int) else int(limit * len(loader))]
    seen = np.concatenate([batch.host_lengths for batch in read])
    assert len(seen) > 10 and abs(seen.mean() - lengths.mean()) < 4 * lengths.std() / np.sqrt(len(seen))


@pytest.mark.parametrize("equal_row_weights", [True, False])
def test_a_rank_without_rows_at_a_step_computes_a_row_of_weight_zero(split, equal_row_weights):
    settings = {**SETTINGS, "max_sequences": 1, "equal_row_weights": equal_row_weights}
    loaders = []
    for rank in range(4):
        module = SequenceDataModule({"train": split}, **settings)
        module.trainer = trainer(world_size=4, global_rank=rank)
        loaders.append(list(module.train_dataloader()))
    assert {len(batches) for batches in loaders} == {23}
    batches = [batch for batches in loaders for batch in batches]
    assert sorted(int(batch.ids[0]) for batch in batches if batch.weight) == list(range(90))
    assert [len(batch.ids) for batch in batches if not batch.weight] == [1, 1]
