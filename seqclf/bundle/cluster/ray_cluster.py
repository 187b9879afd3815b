"""Connection to Ray: either to a running Ray cluster, or to a local Ray that the command starts and stops."""

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

import seqclf
from seqclf.errors import InputError, first_line
from seqclf.system import signals

CONNECT_S = 5.0
MAX_FOLDER = 40  # maximum length of a folder path, because Ray appends names of Unix sockets (limit: 107)


@contextlib.contextmanager
def connected(address: str | None, *, cpus: int, object_store_mb: int) -> Iterator[tuple[Any, str]]:
    """Connect to Ray, and disconnect at the end of the block.

    Yield the module `ray`, and the config key with which error texts begin.

    Args:
        address: address of a running cluster (host:port, or auto). If the address is None, a local Ray runs on this
            machine until the end of the block.
        cpus: number of CPUs of a local Ray.
        object_store_mb: size of a local Ray's object store, in MB (1e6 bytes). Ray writes objects to disk when the
            store is full.

    Raises:
        InputError: Ray is not installed, Ray cannot start, or no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning of Ray about num_gpus=0
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
            "address": "local",  # "local" overrides the environment variable RAY_ADDRESS
            "num_cpus": cpus,
            "object_store_memory": object_store_mb * 10**6,
            "include_dashboard": False,
            "_temp_dir": folder,
        }
    else:
        _require_cluster(address, where)
    try:
        with _quiet():
            _connect(ray, settings, where)
            yield ray, where
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, settings: dict[str, Any], where: str) -> None:
    try:
        # Ray adds the working folder to the import path of its processes, but `predict` must not import from this
        # folder.
        with contextlib.chdir(Path(seqclf.__file__).parent.parent):
            ray.init(**settings, log_to_driver=False, logging_level=logging.CRITICAL)
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # Ray's signal handler has raised this SystemExit
            signals.end()
        raise
    except Exception as error:  # Ray raises ValueError, ConnectionError or RuntimeError
        raise InputError(where, f"cannot start or reach Ray ({first_line(error)})", "see `ray status`") from None
    signals.reinstall()  # Ray has replaced the handler of SIGTERM


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages about dead actors that Ray prints on stdout.

    The messages are not needed: the pool replaces a dead actor, or ends the command with an error.
    """
    from ray._private import worker

    printer = getattr(worker, "print_to_stdstream", None)
    setattr(worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010 (of an internal module)
    try:
        yield
    finally:
        setattr(worker, "print_to_stdstream", printer)  # noqa: B010


def _require_cluster(address: str, where: str) -> None:
    """Raise InputError unless a process listens at `address`, the address of a Ray cluster.

    Without this check, Ray would wait much longer for a cluster that does not answer.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(where, "is not HOST:PORT or auto", "run the command on a node of the cluster with auto")
    if not answers((host, int(port))):
        raise InputError(where, "no cluster answers there", "see `ray status`")


def _short_folder() -> str:
    """Create a folder with a short path for the temporary files of Ray."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= MAX_FOLDER else "/tmp")


def answers(address: tuple[str, int]) -> bool:
    """Return True if a process listens at an address."""
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except (OSError, OverflowError):
        return False
    return True
