"""Prefetch items in a thread, so that the next items are computed while the current item is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
AHEAD = 2  # maximum number of prefetched items; it is small because an item may be a record batch of many megabytes
END = object()


def prefetched(items: Iterable[Item]) -> Generator[Item, None, None]:
    """Yield the items of `items` in order. A thread computes up to `AHEAD` items in advance.

    An exception of `items` comes after the items before it. A consumer that stops early should close the iterator.

    >>> list(prefetched(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    ready: queue.Queue[Any] = queue.Queue(AHEAD)  # entries: (item, None); at the end (END, None), or (END, exception)
    stopped = threading.Event()

    def put(entry: Any) -> bool:
        # Without a timeout, `put` would block forever if the queue is full when the consumer stops.
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        source = iter(items)
        try:
            for item in source:
                if not put((item, None)):
                    break
            else:
                put((END, None))
        except BaseException as error:
            put((END, error))
        finally:
            # A generator must be closed in the thread that runs it, because it may hold open files.
            if hasattr(source, "close"):
                source.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
