"""Connection to Ray: a local one that the command starts and ends, or a running cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seqclf
from seqclf.errors import InputError, first_line
from seqclf.system import signals

CONNECT_S = 10.0
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
    try:
        _connect(ray, settings, where)
        yield ray, where
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, settings: dict[str, Any], where: str) -> None:
    try:
        # Ray adds the working folder to the search path of its processes. `predict` imports nothing from there.
        with contextlib.chdir(Path(seqclf.__file__).parent.parent):
            ray.init(**settings, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # no common base class: ValueError, ConnectionError, RuntimeError
        raise InputError(where, f"cannot start or reach Ray ({first_line(error)})", "see `ray status`") from None
    signals.reinstall()  # Ray handles SIGTERM by itself
    with contextlib.suppress(ImportError, AttributeError):  # of another version
        from ray._private.ray_logging import global_worker_stdstream_dispatcher

        # Prints a report of each actor that dies. The actors here are replaced, or end the command with one line.
        global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")


def _require_cluster(address: str, where: str) -> None:
    """Raise InputError unless something listens at an address, for which Ray would wait much longer."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(where, "is not HOST:PORT or auto", "run the command on a node of the cluster with auto")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(where, f"no cluster answers ({first_line(error)})", "see `ray status`") from None


def _short_folder() -> str:
    """Return a new folder for the files of Ray."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= MAX_FOLDER else "/tmp")


def head_of(ray: Any) -> tuple[str, int]:
    """Return host and port of the head node."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return host, int(port)
