"""Prediction on Ray: actors predict windows of rows, with the bytes of one process, also if an actor is killed."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import seqclf
from seqclf.bundle.explanation import explain_batch
from seqclf.bundle.manifest import NAME
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.session import thread_count
from seqclf.bundle.windows import Window
from seqclf.errors import InputError, first_line
from seqclf.system import signals
from seqclf.system.atomic_files import scratch_folder
from seqclf.system.version import __version__

WINDOWS_PER_ACTOR = 2  # one that the actor predicts, and the next one
MAX_RESTARTS = 3  # number of times that Ray starts a dead actor again, and repeats its windows
START_S, CONNECT_S = 90.0, 5.0  # seconds to wait until the first actor has started, and for a port of the cluster
POLL_S = 1.0  # maximum seconds to wait for a result at a time, so that a signal can end the command
FOLDER = Path("/tmp")  # parent of the temporary files of a local Ray; the paths of its Unix sockets must be short
# Read by Ray when it is imported: no statistics of use, no warning about num_gpus=0, and for a Ray that we start, only
# the loopback address.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
TOKEN = secrets.token_hex()  # one for the process, as Ray reads it once
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ENABLE_K8S_TOKEN_AUTH": "0", "RAY_AUTH_MODE": "token"}


class Worker:
    """An actor with a bundle, whose files it gets, because another machine may have no access to the bundle folder.

    `files`: see `bundle_files`. `folder`: folder of the bundle, for error texts. `settings`: arguments of `Classifier`.
    `by_field`: None to predict; True or False to explain (see `explain_batch`).
    """

    def __init__(self, files: Mapping[str, bytes], folder: Path, settings: Mapping[str, Any], by_field: bool | None):
        self.by_field = by_field
        with scratch_folder(Path(tempfile.gettempdir()), "bundle-") as copy:
            for name, content in files.items():
                path = copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.classifier = Classifier(copy, **settings)  # compares the hash of every file
        self.classifier.folder = folder

    def started(self) -> tuple[str, str]:
        """Return the version of seqclf, and the execution provider of ONNX Runtime, on this node."""
        return __version__, self.classifier.provider

    def run(self, columns: pa.RecordBatch, first_row: int) -> list[Result]:
        """Predict or explain the rows of one window."""
        if self.by_field is None:
            return [self.classifier.predict_batch(columns, first_row)]
        return list(explain_batch(self.classifier, columns, first_row, by_field=self.by_field))


class RayEngine:
    """Actors that predict or explain windows. `provider`: execution provider of ONNX Runtime in the actors."""

    def __init__(self, ray: Any, actors: list[Any], where: str):
        self.ray, self.where, self.count, self.provider = ray, where, len(actors), ""
        self.starting = {actor.started.remote(): actor for actor in actors}
        self.free: deque[Any] = deque()  # actors that may take a window, once for each window that they may take

    def results(self, windows: Iterable[Window]) -> Iterator[list[Result]]:
        """Yield the results of each window, in the order of the windows.

        Raises InputError if an actor raises an exception, dies more than `MAX_RESTARTS` times or cannot start.
        """
        running: dict[Any, tuple[Any, str]] = {}  # reference to results → actor, and the rows for error texts
        order: deque[Any] = deque()  # references to results, in the order of the windows
        done: dict[Any, list[Result]] = {}

        def arrived() -> Iterator[list[Result]]:
            """Wait for an actor. Yield the results at the head of `order` that have arrived."""
            signals.raise_lost()  # a signal handler's exception is lost if a callback of Ray was running
            references = [*running, *self.starting]
            remedy = "see `ray status`, and start the command again"
            found, _ = self._answer(lambda: self.ray.wait(references, timeout=POLL_S), "Ray failed", remedy)
            for reference in found:
                if reference in self.starting:
                    self._greet(reference)
                else:
                    actor, rows = running.pop(reference)
                    remedy = "try fewer ray.actors; engine=local shows an error of the code"
                    done[reference] = self._answer(partial(self.ray.get, reference), f"{rows} failed", remedy)
                    self.free.append(actor)
            if not self.provider and time.monotonic() > begun + START_S:
                problem = f"no actor could start for {START_S:.0f} s"
                raise InputError(self.where, problem, "free CPUs of the cluster, add nodes, or set fewer threads")
            while order and order[0] in done:
                yield done.pop(order.popleft())

        begun = time.monotonic()
        for window in windows:
            while not self.free or len(order) == WINDOWS_PER_ACTOR * self.count:
                yield from arrived()
            actor, last = self.free.popleft(), window.first_row + window.columns.num_rows - 1
            order.append(actor.run.remote(window.columns, window.first_row))
            running[order[-1]] = actor, f"rows {window.first_row:,} to {last:,}"
        while order:
            yield from arrived()

    def _greet(self, reference: Any) -> None:
        remedy = f"install seqclf {__version__} and its packages on every node"
        version, self.provider = self._answer(lambda: self.ray.get(reference), "an actor cannot start", remedy)
        if version != __version__:
            raise InputError(self.where, f"a node has seqclf {version}, this one {__version__}", remedy)
        self.free.extend([self.starting.pop(reference)] * WINDOWS_PER_ACTOR)

    def _answer(self, ask: Callable[[], Any], problem: str, remedy: str) -> Any:
        try:
            return ask()
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            cause = getattr(error, "cause", None) or error  # the exception that was raised in the actor, if any
            if isinstance(cause, InputError):
                raise cause from None
            lines = [line.strip() for line in str(cause).splitlines() if line.strip()]  # the last one is the cause
            raise InputError(self.where, f"{problem} ({[type(cause).__name__, *lines][-1]})", remedy) from None


@contextmanager
def ray_engine(
    classifier: BundleModel,
    settings: Mapping[str, Any],
    by_field: bool | None,
    *,
    address: str | None = None,
    actors: int | None = None,
    object_store_mb: int = 1000,
    worker: type[Worker] = Worker,
) -> Iterator[RayEngine]:
    """Connect to Ray, start actors that predict or explain with a bundle, and end them with the block.

    `settings`, `by_field`: see `Worker`; Ray reserves the `threads`, and a GPU for `device` cuda. `address`: a running
    cluster (host:port, or auto), None for a local Ray, which ends with the block. `actors`: None for as many as the
    cluster has CPUs (with cuda, CPUs and GPUs) for. `object_store_mb`: size of a local Ray's object store, in MB (1e6
    bytes); what it cannot hold is written to disk. Raises InputError if Ray is not installed or cannot be reached.
    """
    files, where = bundle_files(classifier), "engine=ray" if address is None else f"ray.address={address}"
    threads, gpus = settings["threads"], int(settings["device"] == "cuda")
    arguments: dict[str, Any] = {"address": address}
    with ExitStack() as stack:
        if address is None:
            folder = stack.enter_context(scratch_folder(FOLDER, "ray-"))
            # Others must not send code: Ray rejects requests without the token.
            os.environ |= {**LOCAL, "RAY_AUTH_TOKEN": TOKEN, "RAY_TMPDIR": str(folder)}
            cpus, memory = max(thread_count(None), (actors or 1) * threads), object_store_mb * 10**6
            arguments = {"address": "local", "num_cpus": cpus, "object_store_memory": memory}
            arguments["include_dashboard"] = False
        elif address != "auto":
            _require_cluster(address, where)
        os.environ |= QUIET
        try:
            import ray
        except ModuleNotFoundError:
            raise InputError("engine=ray", "not installed", 'pip install "seqclf[ray]"') from None
        stack.enter_context(redirect_stdout(stack.enter_context(Path(os.devnull).open("w"))))  # Ray prints there
        stack.callback(ray.shutdown)
        try:
            # Ray's processes import from the working folder, from which `predict` must not import.
            with signals.deferred_signals(), _kept_handlers(), chdir(Path(seqclf.__file__).parent.parent):
                ray.init(**arguments, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # Ray raises ValueError, ConnectionError or RuntimeError
            raise InputError(where, f"cannot start or reach Ray ({first_line(error)})", "see `ray status`") from None
        found = ray.cluster_resources()
        fitting = min(found.get("CPU", 0) // threads, found.get("GPU", 0) if gpus else float("inf"))
        limits = {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RESTARTS}
        actor = ray.remote(worker).options(num_cpus=threads, num_gpus=gpus, **limits)
        count = actors or max(1, int(fitting))
        stored = ray.put(files)  # once, also for actors that start again, as long as this block runs
        started = [actor.remote(stored, classifier.folder, settings, by_field) for _ in range(count)]
        yield RayEngine(ray, started, where)


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Keep our handlers: that of Ray would break off its start, whose processes would be left, or lose the signal."""
    install, signal.signal = signal.signal, lambda number, handler: signal.getsignal(number)  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = install


def _require_cluster(address: str, where: str) -> None:
    """Raise InputError unless a process listens at HOST:PORT. Ray would wait much longer for one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError, ValueError):
        remedy = "give HOST:PORT, or auto on a node of the cluster"
        raise InputError(where, "no cluster answers there", remedy) from None


def bundle_files(classifier: BundleModel) -> dict[str, bytes]:
    """Read all files of a bundle, by their paths in it. Raises InputError if it was replaced since it was opened."""
    try:
        names = [NAME, *classifier.manifest["files"]]
        files = {name: (classifier.folder / name).read_bytes() for name in names}
        if json.loads(files[NAME])["digest"] == classifier.manifest["digest"]:
            return files
    except (OSError, ValueError, KeyError):
        pass
    raise InputError(f"bundle={classifier.folder}", "was replaced while it was read", "start the command again")
