"""A pool of Ray actors (worker processes). The actors predict windows (contiguous blocks of rows) in parallel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from seqclf.bundle import model
from seqclf.bundle.cluster.ray_cluster import connected
from seqclf.bundle.cluster.ray_worker import WindowWorker, bundle_files
from seqclf.bundle.explanations import explanation
from seqclf.bundle.predictions import Result
from seqclf.bundle.rows.windows import RunWindows, Window, run_windows, source_windows
from seqclf.bundle.session import thread_count
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.system import progress, signals
from seqclf.system.version import __version__

WINDOWS_PER_ACTOR = 2  # one window to predict now, and one window to predict next
MAX_RESTARTS = 3  # number of times that Ray starts a dead actor again, and repeats the window that it had
PATIENCE_S = 90.0  # seconds to wait until at least one actor is ready
POLL_S = 1.0  # maximum seconds to wait for a result at a time, so that a signal can end the command
SAME_VERSION = f"install seqclf {__version__} and its packages on every node"


class Task(NamedTuple):
    """A window that an actor predicts or explains. `rows`: the rows of the window, for error texts."""

    actor: Any
    rows: str


class ActorPool:
    """A pool of actors that predict or explain windows. Each actor has at most `WINDOWS_PER_ACTOR` windows at a time.

    Ray starts a dead actor again, and repeats its windows. Ray's object store holds at most `WINDOWS_PER_ACTOR` windows
    per actor.

    Attributes:
        ray: the module `ray`, connected to a cluster.
        where: config key that error texts begin with.
        ready: number of actors that have started.
        provider: execution provider that ONNX Runtime uses in the actors.
    """

    def __init__(self, ray: Any, actors: Sequence[Any], where: str):
        self.ray, self.where = ray, where
        self.limit = WINDOWS_PER_ACTOR * len(actors)
        self.begun = time.monotonic()
        self.starting = {actor.started.remote(): actor for actor in actors}
        self.ready, self.provider = 0, ""
        self.free: deque[Any] = deque()  # actors that may take a window, once for each window that they may take
        self.running: dict[Any, Task] = {}  # Ray's reference to results → task
        self.done: dict[Any, list[Result]] = {}  # reference → results that have arrived, and are not yielded yet

    def results(self, windows: Iterable[Window], title: str, unit: str) -> Iterator[list[Result]]:
        """Send windows to the actors. Yield the results of each window, in the order of the windows.

        Raises:
            InputError: an actor raised an exception or died more than `MAX_RESTARTS` times, or no actor was ready for
                `PATIENCE_S` seconds.
        """
        order, rows = deque[Any](), 0  # `order`: references to results, in the order of the windows
        with progress.stage(title, unit=unit) as current:
            for window in windows:
                while not self.free or len(order) == self.limit:
                    yield from self._arrived(order, current)
                actor, count = self.free.popleft(), window.columns.num_rows
                reference = actor.run.remote(self.ray.put(window.columns), window.first_row)
                order.append(reference)
                text = f"rows {window.first_row:,} to {window.first_row + count - 1:,}"
                self.running[reference] = Task(actor, text)
                rows += count
            current.total = rows
            while order:
                yield from self._arrived(order, current)

    def _arrived(self, order: deque[Any], current: progress.Stage) -> Iterator[list[Result]]:
        """Wait for an answer of an actor. Yield the windows' results at the head of `order` that have arrived."""
        signals.raise_lost()  # a signal handler's exception is lost if a callback of Ray was running
        arrived, _ = self.ray.wait([*self.running, *self.starting], timeout=POLL_S)
        remedy = "try fewer ray.actors, which leaves each more memory; engine=local shows an error of the code"
        for reference in arrived:
            if reference in self.starting:
                self._greet(reference)
                continue
            actor, text = self.running.pop(reference)
            self.done[reference] = self._answer(reference, f"{text} failed", remedy)
            self.free.append(actor)
        if not self.ready and time.monotonic() - self.begun > PATIENCE_S:
            problem = f"no actor could start for {PATIENCE_S:.0f} s"
            raise InputError(self.where, problem, "free CPUs of the cluster, add nodes, or set fewer threads")
        while order and order[0] in self.done:
            results = self.done.pop(order.popleft())
            current.advance(sum(result.counts.rows for result in results))
            yield results

    def _greet(self, reference: Any) -> None:
        """Take a started actor into use. Raises InputError if it has another version of seqclf."""
        version, self.provider = self._answer(reference, "an actor cannot start", SAME_VERSION)
        if version != __version__:
            raise InputError(self.where, f"a node has seqclf {version}, this one {__version__}", SAME_VERSION)
        self.ready += 1
        self.free.extend([self.starting.pop(reference)] * WINDOWS_PER_ACTOR)

    def _answer(self, reference: Any, problem: str, remedy: str) -> Any:
        """Return the answer of an actor. Raises its InputError, or an InputError for any other exception."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error  # the exception that was raised in the actor, if any
            if isinstance(cause, InputError):
                raise cause from None
            lines = [line.strip() for line in str(cause).splitlines() if line.strip()]  # the last one is the cause
            raise InputError(self.where, f"{problem} ({[type(cause).__name__, *lines][-1]})", remedy) from None


def pool_results(
    pool: ActorPool,
    classifier: model.BundleModel,
    source: Source,
    by_field: bool | None,
    run: RunWindows = run_windows,
) -> Iterator[Result]:
    """Predict or explain the rows of a source with a pool of actors. Yield the results in the order of the rows.

    `by_field`: as for `actor_pool`. `run`: see `run_windows`.
    """
    verb, rows, unit = "predicting", model.WINDOW_ROWS, "rows"
    if by_field is not None:
        verb, rows, unit = "explaining", explanation.WINDOW_ROWS, explanation.UNIT
    name = source.short_name
    windows = source_windows(classifier.schema, source, title=f"reading {name}", unit=unit, window_rows=rows)
    return run(windows, lambda rest: pool.results(rest, f"{verb} {name}", unit))


@contextmanager
def actor_pool(
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
) -> Iterator[ActorPool]:
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
        yield ActorPool(ray, [actor.remote(*arguments) for _ in range(count)], where)


def _fitting(resources: Mapping[str, float], threads: int, cuda: bool) -> int:
    """Return the number of actors for which a cluster has CPUs and GPUs.

    The number is at least 1, because a cluster may grow.
    """
    fitting = resources.get("CPU", 0) // threads
    return max(1, int(min(fitting, resources.get("GPU", 0)) if cuda else fitting))
