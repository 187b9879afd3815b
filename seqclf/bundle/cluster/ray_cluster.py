"""Connection to Ray: either to a running Ray cluster, or to a local Ray that the command starts and stops."""

from __future__ import annotations

import contextlib
import logging
import os
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
FOLDER = "/tmp"  # parent of the temporary files of a local Ray; the paths of its Unix sockets must be short


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
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"address": address}
        if address is None:
            folder = tempfile.TemporaryDirectory(prefix="ray-", dir=FOLDER, ignore_cleanup_errors=True)
            settings = {
                "address": "local",  # "local" overrides the environment variable RAY_ADDRESS
                "num_cpus": cpus,
                "object_store_memory": object_store_mb * 10**6,
                "include_dashboard": False,
                "_temp_dir": stack.enter_context(folder),
            }
            stack.callback(_end_leftovers, folder.name)
        elif address != "auto":
            _require_cluster(address, where)
        stack.callback(ray.shutdown)
        stack.enter_context(_quiet())
        _connect(ray, settings, where)
        yield ray, where


def _end_leftovers(folder: str) -> None:
    """Kill processes of a local Ray that hold files of its folder, which Ray leaves if a signal ends its start."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = [str(file.readlink()) for file in (process / "fd").iterdir()]
            if process.name != str(os.getpid()) and any(file.startswith(f"{folder}/") for file in files):
                os.kill(int(process.name), signal.SIGKILL)


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
    """Raise InputError unless a process listens at `address`, which is HOST:PORT.

    Without this check, Ray would wait much longer for a cluster that does not answer.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError, ValueError):
        raise InputError(
            where, "no cluster answers there", "give HOST:PORT, or auto on a node of the cluster"
        ) from None
