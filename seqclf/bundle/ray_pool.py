"""Actors of Ray that run windows: each window until it succeeds, and the results in the order of the windows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from seqclf.bundle.predictions import Result
from seqclf.bundle.ray_cluster import answers, head_address, node_address
from seqclf.bundle.windows import Window
from seqclf.errors import InputError, first_line
from seqclf.system import progress, signals
from seqclf.system.version import __version__

WINDOWS_PER_ACTOR = 2  # one is predicted while the next one is on its way
MAX_ATTEMPTS = 4  # runs of one window
MAX_STARTS = 3  # failed starts of one actor in succession
PATIENCE_S = 90.0  # seconds of waiting without any actor
HEAD_PATIENCE_S = 20.0  # without an answer of the head node; Ray itself ends the process after 60 s
CHECK_S = 2.0  # between looks at Ray
START_AGAIN = "start Ray and the command again"  # after Ray has ended
POLL_S = 1.0  # at least this often, a signal can end the wait


@dataclass(eq=False)
class Task:
    """A window on its way to its results. `columns`: reference to its columns in the object store."""

    first_row: int
    rows: int
    columns: Any
    failures: int = 0
    results: list[Result] | None = None


@dataclass(eq=False)
class Slot:
    """The place of an actor, in which another one starts after its death.

    `starting`: reference to what `started` returns, None once it is known. `sent`: reference → window of the actor, in
    the order in which the actor runs them.
    """

    actor: Any = None
    starting: Any = None
    failed_starts: int = 0
    sent: dict[Any, Task] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.actor is not None and self.starting is None


class ActorPool:
    """Actors that run windows, at most `WINDOWS_PER_ACTOR` each, so the object store holds no more than these.

    `ray`: the connected module. `create`: starts an actor and returns its handle. `where`: place that errors name.
    `most_ready`: largest number of actors that could work at a time. `provider`: ONNX Runtime's, in the actors.
    """

    def __init__(self, ray: Any, create: Callable[[], Any], actors: int, where: str):
        self.ray, self.create, self.where = ray, create, where
        self.head, self.node = head_address(ray), node_address(ray)
        self.most_ready, self.provider = 0, ""
        self.waiting: deque[Task] = deque()  # to be sent, the earliest first
        self.looked = self.checked = time.monotonic()
        self.alone_s = 0.0  # spent waiting without an actor; reading, which may take minutes, does not count
        self.head_lost: float | None = None  # time of the first of the checks that the head node has not answered
        self.reason = ""  # why the last actor ended
        self.slots = [Slot() for _ in range(actors)]
        for slot in self.slots:
            self._start(slot)

    def results(self, windows: Iterable[Window], title: str, unit: str) -> Iterator[Result]:
        """Yield the results of windows in their order.

        Raises:
            InputError: the data or the bundle is wrong (from an actor), a window failed `MAX_ATTEMPTS` times, no actor
                could work for `PATIENCE_S`, or Ray is gone (here, or the head node).
        """
        source, unfinished, read, total = iter(windows), deque[Task](), 0, None
        with progress.stage(title, unit=unit) as current:
            while True:
                signals.raise_lost()  # Ray's callbacks may drop what a signal raised
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
        """Send waiting windows to the actors with the fewest."""
        while self.waiting:
            free = [slot for slot in self.slots if slot.ready and len(slot.sent) < WINDOWS_PER_ACTOR]
            if not free:
                return
            slot, task = min(free, key=lambda slot: len(slot.sent)), self.waiting.popleft()
            slot.sent[slot.actor.run.remote(task.columns, task.first_row)] = task

    def _receive(self, timeout_s: float) -> None:
        """Take what has arrived. Wait for the first arrival, up to `timeout_s`."""
        owners = {reference: slot for slot in self.slots for reference in slot.sent}
        owners |= {slot.starting: slot for slot in self.slots if slot.starting is not None}
        if owners:
            arrived, _ = self.ray.wait(list(owners), timeout=timeout_s)
            for reference in arrived:
                self._take(owners[reference], reference)
        self._require_actors()
        self._require_ray()

    def _take(self, slot: Slot, reference: Any) -> None:
        """Take the answer of an actor, or deal with its error."""
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(reference)
        except errors.RayError as error:
            cause = getattr(error, "cause", None)  # what an actor raised
            if isinstance(cause, InputError):
                raise cause from None
            if isinstance(error, errors.RayActorError) or reference == slot.starting:
                self._replace(slot, last_line(error))
            else:  # the actor raised, or the result was lost with its node
                self._retry(slot.sent.pop(reference), first_line(cause or error))
        else:
            if reference == slot.starting:
                self._greet(slot, *answer)
            else:
                slot.sent.pop(reference).results = answer

    def _greet(self, slot: Slot, version: str, provider: str) -> None:
        """Let an actor that has started work. Raises InputError if its results may differ."""
        if version != __version__:
            raise InputError(
                self.where, f"a node has seqclf {version}, this one {__version__}", "install one version on every node"
            )
        slot.starting, slot.failed_starts, self.provider = None, 0, provider
        self.most_ready = max(self.most_ready, sum(other.ready for other in self.slots))

    def _retry(self, task: Task, reason: str) -> None:
        """Send a window again, before all others. Raises InputError once it has failed too often."""
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
        """Start another actor in place of a dead one, and send its windows again."""
        lost, slot.sent, self.reason = list(slot.sent.values()), {}, reason
        slot.failed_starts += slot.starting is not None
        self.waiting.extendleft(reversed(lost[1:]))
        if lost:
            self._retry(lost[0], reason)  # the one it was running; those behind it are not to blame
        slot.actor = slot.starting = None
        if slot.failed_starts < MAX_STARTS:
            self._start(slot)

    def _require_actors(self) -> None:
        """Raise InputError if no actor can work, and none will."""
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
        """Raise InputError if Ray ended on this machine, or the head node has not answered for `HEAD_PATIENCE_S`."""
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
    """Return the last line of a text with a traceback, which names the cause.

    >>> last_line(RuntimeError("the actor died\\nTraceback:\\n  File x\\nNameError: y\\n"))
    'NameError: y'
    """
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
