"""Work on parts of a batch at the same time, each part in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor


def map_parts(function: Callable[..., Tensor], parts: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    """Return the results of a function of several tensors for each part of a batch, without gradients.

    On a CPU, parts are computed at the same time, by as many threads as PyTorch has. Many small operations that share
    their work between threads would spend much of the time waiting for each other, ten times the time of the work on a
    machine with other load. The results are equal to the bit, whatever the number of threads.
    """
    threads = torch.get_num_threads()
    if not parts or parts[0][0].device.type != "cpu" or threads == 1:
        with torch.no_grad():
            return [function(*part) for part in parts]
    infers = torch.is_inference_mode_enabled()  # a setting of the thread

    def run(part: tuple[Tensor, ...]) -> Tensor:
        with torch.inference_mode(infers), torch.no_grad():
            return function(*part)

    with one_thread():
        if len(parts) == 1:
            return [run(parts[0])]
        workers = min(threads, len(parts))
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, parts))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let operations of PyTorch use one thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
