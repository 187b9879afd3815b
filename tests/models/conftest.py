"""A small network over a category and a number field, and batches for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.torchlib_registry import share_registry
from torch import Tensor

from seqclf.models.classifier import EncoderClassifier

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
PLAIN = {
    "encoder": {"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    "cell": "lstm",
    "embedding_size": 6,
    "hidden_size": 8,
    "layers": 1,
    "bidirectional": False,
    "pooling": "last",
    "layout": "padded",
    "dropout": 0.0,
    "token_dropout": 0.0,
    "number_noise": 0.0,
}


share_registry()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def net() -> Callable[..., EncoderClassifier]:
    """`net(cell="gru", …)` returns a network in evaluation mode, with the same weights for the same options."""

    def make(fields: list[dict[str, Any]] = FIELDS, num_classes: int = 4, **options: Any) -> EncoderClassifier:
        torch.manual_seed(1)
        network = EncoderClassifier(fields, num_classes, **{**PLAIN, **options}).eval()
        with torch.no_grad():  # biases start at zero; a test must notice when one is lost
            for weight in network.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
        return network

    return make


@pytest.fixture(scope="session")
def inputs() -> Callable[..., tuple[dict[str, Tensor], Tensor, np.ndarray]]:
    """`inputs(lengths, time, seed)` returns fields, lengths and their host copy. Padding holds random values."""

    def make(lengths: Any, time: int | None = None, seed: int = 0) -> tuple[dict[str, Tensor], Tensor, np.ndarray]:
        host = np.asarray(lengths, dtype=np.int64)
        shape = (len(host), int(time or host.max()))
        generator = torch.Generator().manual_seed(seed)
        fields = {
            "token": torch.randint(0, 12, shape, generator=generator),
            "value": torch.randn(*shape, 3, generator=generator),
        }
        return fields, torch.from_numpy(host), host

    return make
