"""Connection to Ray: a local one that the command starts and ends, or a running cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import seqclf
from seqclf.errors import InputError, first_line
from seqclf.system import signals

CONNECT_S = 5.0
MAX_FOLDER = 40  # characters of the folder of Ray, whose sockets lie in it under at most 107


@contextlib.contextmanager
def connected(address: str | None, *, cpus: int, object_store_mb: int) -> Iterator[tuple[Any, str]]:
    """Yield the module ray, connected, and the place for errors. Disconnect at the end of the block.

    Args:
        address: of a running cluster (host:port, or auto), or None to start Ray on this machine, which ends with the
            block.
        cpus: CPUs of the local Ray.
        object_store_mb: size of the object store of the local Ray, in MB (1e6 bytes). What exceeds it goes to disk.

    Raises:
        InputError: Ray is not installed, cannot start, or there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning; actors without a GPU use none
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("engine=ray", "not installed", 'pip install "seqclf[ray]"') from None
    where = "engine=ray" if address is None else f"ray.address={address}"
    settings: dict[str, Any] = {"address": address}
    folder = None
    if address is None:
        folder = _short_folder()
        settings = {
            "address": "local",  # not the cluster of RAY_ADDRESS
            "num_cpus": cpus,
            "object_store_memory": object_store_mb * 10**6,
            "include_dashboard": False,
            "_temp_dir": folder,
        }
    else:
        _require_cluster(address, where)
    earlier = _children()
    try:
        with _quiet():
            _connect(ray, settings, where)
            yield ray, where
    finally:
        started = _children() - earlier
        ray.shutdown()
        if folder is not None:
            for process in started:  # agents outlive a start that a signal interrupts by a while
                with contextlib.suppress(psutil.Error):
                    process.kill()
            shutil.rmtree(folder, ignore_errors=True)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _connect(ray: Any, settings: dict[str, Any], where: str) -> None:
    try:
        # Ray adds the working folder to the search path of its processes. `predict` imports nothing from there.
        with contextlib.chdir(Path(seqclf.__file__).parent.parent):
            ray.init(**settings, log_to_driver=False, logging_level=logging.CRITICAL)
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # raised by Ray's handler
            signals.end()
        raise
    except Exception as error:  # no common base class: ValueError, ConnectionError, RuntimeError
        raise InputError(where, f"cannot start or reach Ray ({first_line(error)})", "see `ray status`") from None
    signals.reinstall()  # Ray handles SIGTERM by itself


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Print no reports of actors that die, which Ray writes to stdout. They are replaced, or end the command."""
    from ray._private import worker

    printer = getattr(worker, "print_to_stdstream", None)
    setattr(worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010 (of an internal module)
    try:
        yield
    finally:
        setattr(worker, "print_to_stdstream", printer)  # noqa: B010


def _require_cluster(address: str, where: str) -> None:
    """Raise InputError unless something listens at an address, for which Ray would wait much longer."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(where, "is not HOST:PORT or auto", "run the command on a node of the cluster with auto")
    if not answers((host, int(port))):
        raise InputError(where, "no cluster answers there", "see `ray status`")


def _short_folder() -> str:
    """Return a new folder for the files of Ray."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= MAX_FOLDER else "/tmp")


def head_address(ray: Any) -> tuple[str, int]:
    """Return host and port of the head node."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return host, int(port)


def node_address(ray: Any) -> tuple[str, int]:
    """Return host and port of Ray on this machine."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return node["NodeManagerAddress"], int(node["NodeManagerPort"])


def answers(address: tuple[str, int]) -> bool:
    """Return True if a process listens at an address."""
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except (OSError, OverflowError):
        return False
    return True
