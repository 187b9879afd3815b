"""Fixtures for all tests: a temporary cache folder, a shell, and data options with the defaults of conf/."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache as memoised
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from support.config_files import share_config_files
from support.shell import Shell
from threadpoolctl import threadpool_limits

from seqclf.config.hydra_config import compose_config
from seqclf.data.prepare_data import DataOptions
from seqclf.system import signals

# A first call may import modules, and other programs may use the processor.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

share_config_files()


def pytest_configure() -> None:
    """Hide GPUs, use one thread, and receive Ctrl-C.

    Tests compare with the CPU bit for bit, and fork processes that train, which CUDA does not survive. pytest-xdist
    runs a worker for each core: more threads, here and in the commands that tests start, would wait for each other.
    Programs started in the background of a script ignore Ctrl-C, those that nohup started SIGHUP, as do their children.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    threadpool_limits(1, "blas")
    for number in signals.SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the end-to-end tests: a file of long tests that comes last would keep one worker busy alone."""
    items.sort(key=lambda item: "end_to_end" not in item.path.parts)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Handlers that a test installs, such as those of a command, and signals that it received end with it."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    yield
    signals.forget()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Temporary folder of SEQCLF_CACHE, shared by all tests of a session."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQCLF_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def empty_shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in a folder that all workers of pytest-xdist share, without files."""
    base = tmp_path_factory.getbasetemp()
    # The base folders of all workers have one parent.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shell"
    folder.mkdir(exist_ok=True)
    return Shell(folder)


@pytest.fixture(scope="session")
def options(cache: Path) -> Callable[..., DataOptions]:
    """`options(data="files", split={"by": "time"}, label="y", …)`: the data group of conf/train.yaml with overrides.

    Fields that a test declares are all, unless it says `infer`.
    """

    # Composing takes far longer than building the options, and the result does not depend on the overrides.
    @memoised
    def composed(data: str) -> Any:
        return compose_config("train", [f"data={data}"]).plain()["data"]

    def build(data: str = "files", **overrides: Any) -> DataOptions:
        defaults = composed(data)
        split = {**defaults["split"], **overrides.pop("split", {})}
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in overrides.items()}
        infer = not (overrides.get("fields") or data != "files")
        return DataOptions.build(**{**defaults, "infer": infer, **plain, "split": split})

    return build


@pytest.fixture(autouse=True)
def denormal_numbers() -> Iterator[None]:
    """Undo `torch.set_flush_denormal`, a switch of the process that Hypothesis refuses to draw floats under."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
