"""A pool of Ray actors (worker processes). The actors predict windows (contiguous blocks of rows) in parallel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from seqclf.bundle import explanation, model
from seqclf.bundle.predictions import Result
from seqclf.bundle.ray_cluster import answers, connected, head_address, node_address
from seqclf.bundle.ray_worker import WindowWorker, bundle_files
from seqclf.bundle.session import thread_count
from seqclf.bundle.windows import Window, source_windows
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError, first_line
from seqclf.system import progress, signals
from seqclf.system.version import __version__

WINDOWS_PER_ACTOR = 2  # one window to predict now, and one window to predict next
MAX_ATTEMPTS = 4  # number of attempts to predict a window
MAX_STARTS = 3  # number of failed starts in a row after which an actor is not started again
PATIENCE_S = 90.0  # seconds to wait until at least one actor is ready
HEAD_PATIENCE_S = 20.0  # seconds to wait for an answer of the head node; Ray would end the process after 60 s
CHECK_S = 2.0  # seconds between two checks that Ray is still running
START_AGAIN = "start Ray and the command again"  # remedy in the error for a Ray that has ended
POLL_S = 1.0  # maximum seconds to wait for a result at a time, so that a signal can end the command


@dataclass(eq=False)
class Task:
    """A window to predict or explain. `columns`: reference to the window's columns in Ray's object store."""

    first_row: int
    rows: int
    columns: Any
    failures: int = 0
    results: list[Result] | None = None


@dataclass(eq=False)
class Slot:
    """A place for one actor in the pool. If the actor dies, another actor takes its place.

    `starting`: Ray reference to the result of `WindowWorker.started`, or None after the result has arrived. `sent`:
    dict Ray reference to a result → window, for the windows that the actor has not finished. The dict has the order in
    which the windows were sent.
    """

    actor: Any = None
    starting: Any = None
    failed_starts: int = 0
    sent: dict[Any, Task] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.actor is not None and self.starting is None


class ActorPool:
    """A pool of actors that predict windows. Each actor has at most `WINDOWS_PER_ACTOR` windows at a time.

    Ray's object store holds at most `WINDOWS_PER_ACTOR` windows per actor. `ray`: the module `ray`, connected to a
    cluster. `create`: function that starts an actor and returns the actor's handle. `where`: config key that error
    texts begin with. `most_ready`: largest number of actors that were ready at the same time. `provider`: execution
    provider that ONNX Runtime uses in the actors.
    """

    def __init__(self, ray: Any, create: Callable[[], Any], actors: int, where: str):
        self.ray, self.create, self.where = ray, create, where
        self.head, self.node = head_address(ray), node_address(ray)
        self.most_ready, self.provider = 0, ""
        self.waiting: deque[Task] = deque()  # tasks that were not sent yet, in the order of the windows
        self.looked = self.checked = time.monotonic()
        self.alone_s = 0.0  # seconds without a ready actor; time to read the source is left out
        self.head_lost: float | None = None  # time of the first check that the head node did not answer
        self.reason = ""  # error text of the actor that ended last
        self.slots = [Slot() for _ in range(actors)]
        for slot in self.slots:
            self._start(slot)

    def results(self, windows: Iterable[Window], title: str, unit: str) -> Iterator[Result]:
        """Predict windows with the actors. Yield the results in the order of the windows.

        Raises:
            InputError: an actor raised an InputError, a window failed `MAX_ATTEMPTS` times, no actor was ready for
                `PATIENCE_S` seconds, or Ray has ended on this machine or on the head node.
        """
        source, unfinished, read, total = iter(windows), deque[Task](), 0, None
        with progress.stage(title, unit=unit) as current:
            while True:
                signals.raise_lost()  # a signal handler's exception is lost if a callback of Ray was running
                if total is None and len(unfinished) < WINDOWS_PER_ACTOR * len(self.slots):
                    window = next(source, None)
                    if window is None:
                        current.total = total = read
                    else:
                        read += window.columns.num_rows
                        task = Task(window.first_row, window.columns.num_rows, self.ray.put(window.columns))
                        unfinished.append(task)
                        self.waiting.append(task)
                elif not unfinished:
                    return
                self._send()
                reading = total is None and len(unfinished) < WINDOWS_PER_ACTOR * len(self.slots)
                self._receive(0 if reading or (unfinished and unfinished[0].results is not None) else POLL_S)
                while unfinished and unfinished[0].results is not None:
                    task = unfinished.popleft()
                    current.advance(task.rows)
                    yield from task.results or []

    def _start(self, slot: Slot) -> None:
        slot.actor = self.create()
        slot.starting = slot.actor.started.remote()

    def _send(self) -> None:
        """Send the waiting windows to actors. The actor with the fewest windows gets the next window."""
        while self.waiting:
            free = [slot for slot in self.slots if slot.ready and len(slot.sent) < WINDOWS_PER_ACTOR]
            if not free:
                return
            slot, task = min(free, key=lambda slot: len(slot.sent)), self.waiting.popleft()
            slot.sent[slot.actor.run.remote(task.columns, task.first_row)] = task

    def _receive(self, timeout_s: float) -> None:
        """Process the answers of the actors. Wait up to `timeout_s` seconds for the first answer."""
        owners = {reference: slot for slot in self.slots for reference in slot.sent}
        owners |= {slot.starting: slot for slot in self.slots if slot.starting is not None}
        if owners:
            arrived, _ = self.ray.wait(list(owners), timeout=timeout_s)
            for reference in arrived:
                self._take(owners[reference], reference)
        self._require_actors()
        self._require_ray()

    def _take(self, slot: Slot, reference: Any) -> None:
        """Store the answer of an actor. If the actor failed, replace the actor or retry its window."""
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(reference)
        except errors.RayError as error:
            cause = getattr(error, "cause", None)  # the exception that was raised in the actor, if any
            if isinstance(cause, InputError):
                raise cause from None
            if isinstance(error, errors.RayActorError) or reference == slot.starting:
                self._replace(slot, last_line(error))
            else:  # code in the actor raised an exception, or the node with the result was lost
                self._retry(slot.sent.pop(reference), first_line(cause or error))
        else:
            if reference == slot.starting:
                self._greet(slot, *answer)
            else:
                slot.sent.pop(reference).results = answer

    def _greet(self, slot: Slot, version: str, provider: str) -> None:
        """Mark an actor as ready. Raises InputError if the actor has another version of seqclf."""
        if version != __version__:
            raise InputError(
                self.where, f"a node has seqclf {version}, this one {__version__}", "install one version on every node"
            )
        slot.starting, slot.failed_starts, self.provider = None, 0, provider
        self.most_ready = max(self.most_ready, sum(other.ready for other in self.slots))

    def _retry(self, task: Task, reason: str) -> None:
        """Put a failed window at the front of the queue.

        Raises InputError if the window has failed `MAX_ATTEMPTS` times.
        """
        task.failures += 1
        if task.failures == MAX_ATTEMPTS:
            rows = f"rows {task.first_row:,} to {task.first_row + task.rows - 1:,}"
            raise InputError(
                self.where,
                f"{rows} failed {MAX_ATTEMPTS} times ({reason})",
                "try fewer ray.actors, which leaves each more memory; engine=local shows an error of the code",
            )
        self.waiting.appendleft(task)

    def _replace(self, slot: Slot, reason: str) -> None:
        """Replace a dead actor by a new actor, and put the windows of the dead actor back into the queue."""
        lost, slot.sent, self.reason = list(slot.sent.values()), {}, reason
        slot.failed_starts += slot.starting is not None
        self.waiting.extendleft(reversed(lost[1:]))
        if lost:
            self._retry(lost[0], reason)  # the first window was being predicted, so only this window has failed
        slot.actor = slot.starting = None
        if slot.failed_starts < MAX_STARTS:
            self._start(slot)

    def _require_actors(self) -> None:
        """Raise InputError if no actor can start, or if there was no ready actor for `PATIENCE_S` seconds."""
        now = time.monotonic()
        self.alone_s += min(now - self.looked, 2 * POLL_S)
        self.looked = now
        if any(slot.ready for slot in self.slots):
            self.alone_s = 0.0
        elif all(slot.actor is None for slot in self.slots):
            remedy = f"install seqclf {__version__} and its packages on every node"
            raise InputError(self.where, f"no actor can start ({self.reason})", remedy)
        elif self.alone_s > PATIENCE_S:
            ended = f"; the last one ended: {self.reason}" if self.reason else ""
            raise InputError(
                self.where,
                f"no actor could start for {PATIENCE_S:.0f} s{ended}",
                "free CPUs of the cluster, add nodes, or set fewer threads",
            )

    def _require_ray(self) -> None:
        """Raise InputError if Ray has ended on this machine, or if the head node does not answer any more."""
        now = time.monotonic()
        if now - self.checked < CHECK_S:
            return
        self.checked = now
        if not answers(self.node):
            raise InputError(self.where, "Ray on this machine has ended", START_AGAIN)
        if answers(self.head):
            self.head_lost = None
            return
        self.head_lost = self.head_lost or now
        if now - self.head_lost > HEAD_PATIENCE_S:
            host, port = self.head
            raise InputError(self.where, f"the head node at {host}:{port} no longer answers", START_AGAIN)


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
        actor = ray.remote(worker).options(num_cpus=threads, num_gpus=int(cuda), max_restarts=0)
        arguments = ray.put(files), str(classifier.folder), {**settings, "threads": threads, "device": device}, by_field
        count = actors or _fitting(ray.cluster_resources(), threads, cuda)
        yield RayEngine(classifier, ActorPool(ray, lambda: actor.remote(*arguments), count, where), by_field)


def _fitting(resources: Mapping[str, float], threads: int, cuda: bool) -> int:
    """Return the number of actors for which a cluster has CPUs and GPUs.

    The number is at least 1, because a cluster may grow.
    """
    fitting = resources.get("CPU", 0) // threads
    return max(1, int(min(fitting, resources.get("GPU", 0)) if cuda else fitting))
