"""Moving a batch to a device: as Lightning does it field by field, and for nothing where it is already there."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device

from seqclf.batching.batches import Batch


@pytest.fixture
def batch() -> Batch:
    lengths = np.array([3, 1])
    fields = {"token": torch.tensor([[1, 2, 3], [4, 0, 0]]), "value": torch.ones(2, 3, 2)}
    return Batch(fields, torch.from_numpy(lengths), torch.tensor([0, 1]), lengths, np.array([7, 5]), 0.5)


def test_lightning_keeps_a_batch_of_the_cpu_as_it_is(batch):
    assert move_data_to_device(batch, torch.device("cpu")) is batch
    assert pl.LightningModule().transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch


def test_lightning_moves_all_tensors_and_keeps_what_stays_on_the_host(batch):
    moved = move_data_to_device(batch, torch.device("meta"))
    assert isinstance(moved, Batch) and list(moved.fields) == ["token", "value"]
    tensors = [*moved.fields.values(), moved.lengths, moved.labels]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    before = [*batch.fields.values(), batch.lengths, batch.labels]
    assert [(tensor.shape, tensor.dtype) for tensor in tensors] == [(tensor.shape, tensor.dtype) for tensor in before]
    assert moved.host_lengths is batch.host_lengths and moved.ids is batch.ids and moved.weight == 0.5
    assert batch.lengths.device.type == "cpu", "the batch itself stays where it was"
