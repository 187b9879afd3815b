"""Training inside a job of submitit, the library that sends the runs of a multirun to Slurm."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seqclf.system import signals

REQUEUES = "checkpoint_and_try_requeue"  # submitit's handler of SIGUSR2, or of the signal that its variable names


@contextmanager
def submitted_job() -> Iterator[None]:
    """Inside a job of submitit, let its tasks be the ranks of one training, and let signals end it as a command.

    submitit itself ignores SIGTERM, and requeues the job on SIGUSR2 without a checkpoint. Here both end the training
    with a checkpoint, and then the job is requeued if the signal asks for it. Elsewhere nothing changes.
    """
    # Ranks that Lightning starts inherit submitit's variables.
    if "SUBMITIT_FOLDER" not in os.environ or "LOCAL_RANK" in os.environ:
        yield
        return
    from submitit.helpers import JobEnvironment, TorchDistributedEnvironment

    if JobEnvironment().num_tasks > 1:
        TorchDistributedEnvironment().export(set_cuda_visible_devices=False)  # torchrun's variables
    requeue = _requeueing_handlers()
    for number in requeue:
        signals.receive(number)
    try:
        with signals.ending_command():
            yield
    except SystemExit as end:
        for number, handler in requeue.items():
            if end.code == 128 + number:
                handler(number, None)  # ends the process, but on the first task alone
                sys.exit(0)
        raise


def _requeueing_handlers() -> dict[int, Callable[[int, Any], None]]:
    """Return signal → handler of submitit that requeues the job."""
    handlers: Any = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    return {number: handler for number, handler in handlers.items() if getattr(handler, "__name__", "") == REQUEUES}
