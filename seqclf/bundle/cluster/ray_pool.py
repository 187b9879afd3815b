"""A pool of Ray actors (worker processes). The actors predict windows (contiguous blocks of rows) in parallel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from seqclf.bundle import model
from seqclf.bundle.cluster.ray_cluster import connected
from seqclf.bundle.cluster.ray_worker import WindowWorker, bundle_files
from seqclf.bundle.explanations import explanation
from seqclf.bundle.predictions import Result
from seqclf.bundle.rows.windows import Window, source_windows
from seqclf.bundle.session import thread_count
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.system import progress, signals
from seqclf.system.version import __version__

WINDOWS_PER_ACTOR = 2  # one window to predict now, and one window to predict next
MAX_RESTARTS = 3  # number of times that Ray starts a dead actor again, and repeats the window that it had
PATIENCE_S = 90.0  # seconds to wait until at least one actor is ready
POLL_S = 1.0  # maximum seconds to wait for a result at a time, so that a signal can end the command


class Task(NamedTuple):
    """A window that an actor predicts or explains. `first_row`: its first row. `rows`: number of its rows."""

    actor: Any
    first_row: int
    rows: int


class ActorPool:
    """A pool of actors that predict windows. Each actor has at most `WINDOWS_PER_ACTOR` windows at a time.

    Ray starts a dead actor again, and repeats its windows. Ray's object store holds at most `WINDOWS_PER_ACTOR` windows
    per actor. `ray`: the module `ray`, connected to a cluster. `where`: config key that error texts begin with.
    `ready`: number of actors that have started. `provider`: execution provider that ONNX Runtime uses in the actors.
    """

    def __init__(self, ray: Any, actors: Sequence[Any], where: str):
        self.ray, self.where = ray, where
        self.limit = WINDOWS_PER_ACTOR * len(actors)
        self.starting = {actor.started.remote(): actor for actor in actors}
        self.begun = time.monotonic()
        self.ready, self.provider = 0, ""
        self.free: deque[Any] = deque()  # actors that may take a window, once for each window that they may take
        self.running: dict[Any, Task] = {}  # Ray reference to a result → task

    def results(self, windows: Iterable[Window], title: str, unit: str) -> Iterator[Result]:
        """Predict windows with the actors. Yield the results in the order of the windows.

        Raises:
            InputError: an actor raised an exception or died more than `MAX_RESTARTS` times, or no actor was ready for
                `PATIENCE_S` seconds.
        """
        source, order = iter(windows), deque[Any]()  # `order`: references to results, in the order of the windows
        results: dict[Any, list[Result]] = {}  # the results that have arrived, and are not yielded yet
        is_read, read = False, 0
        with progress.stage(title, unit=unit) as current:
            while order or not is_read:
                signals.raise_lost()  # a signal handler's exception is lost if a callback of Ray was running
                while self.free and len(order) < self.limit and not is_read:
                    window = next(source, None)
                    if window is None:
                        is_read, current.total = True, read
                        break
                    read += window.columns.num_rows
                    order.append(self._send(window))
                if self.starting or self.running:
                    results |= self._receive()
                while order and order[0] in results:
                    arrived = results.pop(order.popleft())
                    current.advance(sum(result.counts.rows for result in arrived))
                    yield from arrived

    def _send(self, window: Window) -> Any:
        actor = self.free.popleft()
        reference = actor.run.remote(self.ray.put(window.columns), window.first_row)
        self.running[reference] = Task(actor, window.first_row, window.columns.num_rows)
        return reference

    def _receive(self) -> dict[Any, list[Result]]:
        """Wait for an answer of an actor. Return the results that have arrived, as a dict reference → results."""
        arrived, _ = self.ray.wait([*self.running, *self.starting], timeout=POLL_S)
        results = {}
        for reference in arrived:
            if reference in self.starting:
                self._greet(self.starting.pop(reference), reference)
            else:
                task = self.running.pop(reference)
                rows = f"rows {task.first_row:,} to {task.first_row + task.rows - 1:,} failed"
                remedy = "try fewer ray.actors, which leaves each more memory; engine=local shows an error of the code"
                results[reference] = self._answer(reference, rows, remedy)
                self.free.append(task.actor)
        if not self.ready and time.monotonic() - self.begun > PATIENCE_S:
            problem = f"no actor could start for {PATIENCE_S:.0f} s"
            raise InputError(self.where, problem, "free CPUs of the cluster, add nodes, or set fewer threads")
        return results

    def _greet(self, actor: Any, reference: Any) -> None:
        """Take a started actor into use. Raises InputError if it has another version of seqclf."""
        remedy = f"install seqclf {__version__} and its packages on every node"
        version, self.provider = self._answer(reference, "an actor cannot start", remedy)
        if version != __version__:
            raise InputError(self.where, f"a node has seqclf {version}, this one {__version__}", remedy)
        self.ready += 1
        self.free.extend([actor] * WINDOWS_PER_ACTOR)

    def _answer(self, reference: Any, problem: str, remedy: str) -> Any:
        """Return the answer of an actor. Raises its InputError, or an InputError for any other exception."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)  # the exception that was raised in the actor, if any
            if isinstance(cause, InputError):
                raise cause from None
            raise InputError(self.where, f"{problem} ({last_line(cause or error)})", remedy) from None


def last_line(error: BaseException) -> str:
    """Return the last line of an error text. If the text is a traceback, its last line is the cause.

    >>> last_line(RuntimeError("the actor died\\nTraceback:\\n  File x\\nNameError: y\\n"))
    'NameError: y'
    """
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


@dataclass(frozen=True)
class RayEngine:
    """A pool of actors that predict or explain the rows of a source with a bundle.

    Attributes:
        classifier: the bundle. The schema of the bundle defines how a source is read.
        pool: the pool of actors.
        by_field: None to predict; True or False to explain (see `explain_batch`).
    """

    classifier: model.BundleModel
    pool: ActorPool
    by_field: bool | None = None

    def results(self, source: Source) -> Iterator[Result]:
        """Predict or explain the rows of a source. Yield the results in the order of the rows."""
        name, predicts = source.short_name, self.by_field is None
        rows, unit = (model.WINDOW_ROWS, "rows") if predicts else (explanation.WINDOW_ROWS, explanation.UNIT)
        windows = source_windows(self.classifier.schema, source, title=f"reading {name}", unit=unit, window_rows=rows)
        return self.pool.results(windows, f"{'predicting' if predicts else 'explaining'} {name}", unit)


@contextmanager
def ray_engine(
    classifier: model.BundleModel,
    *,
    address: str | None = None,
    actors: int | None = None,
    object_store_mb: int = 1000,
    threads: int = 1,
    cuda: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
    by_field: bool | None = None,
    worker: type[WindowWorker] = WindowWorker,
) -> Iterator[RayEngine]:
    """Start actors that predict or explain with a bundle, and stop the actors at the end of the block.

    Args:
        classifier: the bundle.
        address: see `connected`.
        actors: number of actors. If `actors` is None, as many actors are started as the cluster has CPUs (with `cuda`,
            CPUs and GPUs) for.
        object_store_mb: see `connected`.
        threads: number of CPU threads of an actor. Ray reserves one CPU for each thread.
        cuda: True to compute on one GPU per actor, False to compute on CPUs.
        settings: further arguments of `Classifier` in each actor. `device` and `threads` are set by this function.
        by_field: None to predict; True or False to explain (see `explain_batch`).
        worker: class of the actors.

    Raises:
        InputError: see `connected`.
    """
    files = bundle_files(classifier)
    cpus = max(thread_count(None), (actors or 1) * threads)
    with connected(address, cpus=cpus, object_store_mb=object_store_mb) as (ray, where):
        device = "cuda" if cuda else "cpu"
        options = {"num_cpus": threads, "num_gpus": int(cuda)}
        actor = ray.remote(worker).options(**options, max_restarts=MAX_RESTARTS, max_task_retries=MAX_RESTARTS)
        arguments = ray.put(files), str(classifier.folder), {**settings, "threads": threads, "device": device}, by_field
        count = actors or _fitting(ray.cluster_resources(), threads, cuda)
        yield RayEngine(classifier, ActorPool(ray, [actor.remote(*arguments) for _ in range(count)], where), by_field)


def _fitting(resources: Mapping[str, float], threads: int, cuda: bool) -> int:
    """Return the number of actors for which a cluster has CPUs and GPUs.

    The number is at least 1, because a cluster may grow.
    """
    fitting = resources.get("CPU", 0) // threads
    return max(1, int(min(fitting, resources.get("GPU", 0)) if cuda else fitting))
