"""Connection to Ray: either to a running Ray cluster, or to a local Ray that the command starts and stops."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import seqclf
from seqclf.errors import InputError, first_line
from seqclf.system import signals
from seqclf.system.atomic_files import scratch_folder

CONNECT_S = 5.0
FOLDER = Path("/tmp")  # parent of the temporary files of a local Ray; the paths of its Unix sockets must be short


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
        InputError: Ray is not installed, cannot start or runs in this process, or no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning of Ray about num_gpus=0
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("engine=ray", "not installed", 'pip install "seqclf[ray]"') from None
    where = "engine=ray" if address is None else f"ray.address={address}"
    if ray.is_initialized():
        raise InputError(where, "Ray runs in this process already", "call ray.shutdown() first")
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"address": address}
        if address is None:
            folder, token = stack.enter_context(scratch_folder(FOLDER, "ray-")), secrets.token_hex()
            # Others must not send code: Ray refuses requests without the token, and listens on the loopback address.
            stack.callback(_read_token, ray)
            auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_ENABLE_K8S_TOKEN_AUTH": "0"}
            stack.enter_context(_replaced(os.environ, **auth))
            stack.enter_context(_replaced(vars(ray._private.ray_constants), ENABLE_RAY_CLUSTER=False))
            _read_token(ray)
            settings = {
                "address": "local",  # "local" overrides the environment variable RAY_ADDRESS
                "num_cpus": cpus,
                "object_store_memory": object_store_mb * 10**6,
                "include_dashboard": False,
                "_temp_dir": str(folder / "r"),  # Ray lets every user enter this folder, but not its parent
            }
            stack.callback(_end_leftovers, token)
        elif address != "auto":
            _require_cluster(address, where)
        stack.callback(ray.shutdown)
        # Suppress messages about dead actors, which Ray prints on stdout: the pool replaces a dead actor.
        stack.enter_context(_replaced(vars(ray._private.worker), print_to_stdstream=lambda *_, **__: None))
        _connect(ray, settings, where)
        yield ray, where


def _read_token(ray: Any) -> None:
    """Let Ray read the variables RAY_AUTH_* again, which it reads once."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _end_leftovers(token: str) -> None:
    """Kill processes of a local Ray, known by their token, which Ray leaves if a signal ends its start."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.name != str(os.getpid()) and token.encode() in (process / "environ").read_bytes():
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
def _replaced(variables: MutableMapping[str, Any], **values: Any) -> Iterator[None]:
    """Set variables of the environment, or of an internal module of Ray, until the end of the block."""
    before = {name: variables[name] for name in values if name in variables}
    variables.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            del variables[name]
        variables.update(before)


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
