"""Threads of a training run."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from seqclf.runs import process_settings
from seqclf.runs.process_settings import (
    blas_threads,
    idle_threads,
    set_threads,
    training_threads,
)
from seqclf.settings.train_settings import RuntimeOptions

UNSET = RuntimeOptions(threads=None, flush_denormal=True, rank_timeout=60, on_nan="stop")
THREE = UNSET.model_copy(update={"threads": 3})
# 32 batches of 32 rows with 10 tokens each
BATCHES: Any = SimpleNamespace(
    splits={"train": SimpleNamespace(sequences=SimpleNamespace(lengths=np.full(1024, 10)))},
    train_dataloader=lambda: range(32),
)


@pytest.fixture(autouse=True)
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_a_small_network_gets_one_thread_and_a_large_one_several() -> None:
    assert training_threads(UNSET, nn.LSTM(64, 96), BATCHES) == 1
    assert training_threads(UNSET, nn.LSTM(512, 512), BATCHES) == 4


def test_idle_cores_add_threads_that_a_network_gains_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, idle, expected in [(96, 4, None), (128, 4, 2), (128, 1, 1), (512, 1, None)]:
        monkeypatch.setattr(process_settings, "idle_cpus", lambda idle=idle: idle)
        assert idle_threads(nn.LSTM(64, size), BATCHES) == expected


def test_numpy_multiplies_on_one_thread_during_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        with process_settings.process_settings(UNSET, seed=0):
            assert threads() == {1}
        assert threads() == {2}
    assert blas_threads(THREE) == 3
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert blas_threads(UNSET) is None


def test_the_numbers_of_the_user_win(monkeypatch: pytest.MonkeyPatch) -> None:
    set_threads(THREE)
    assert training_threads(THREE, nn.LSTM(64, 96), BATCHES) == torch.get_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(process_settings, "available_cpus", lambda: 1)
    set_threads(UNSET)
    assert training_threads(UNSET, nn.LSTM(64, 96), BATCHES) == 3


def test_quotas_and_the_program_limit_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_settings, "available_cpus", lambda: 2)
    set_threads(UNSET)
    assert training_threads(UNSET, nn.LSTM(512, 512), BATCHES) == 2
    torch.set_num_threads(1)
    set_threads(UNSET)
    assert training_threads(UNSET, nn.LSTM(512, 512), BATCHES) == 1
