"""Prefetching of an iterator in a thread, so that reading and computing overlap."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
AHEAD = 2  # items; each may be a record batch of many megabytes
END = object()


def prefetched(items: Iterable[Item]) -> Generator[Item, None, None]:
    """Yield the same items, of which up to `AHEAD` are made ahead of time in a thread.

    An exception is raised where its item would have come. A consumer that stops early should close the iterator. The
    thread then ends after the item it is making.

    >>> list(prefetched(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    ready: queue.Queue[Any] = queue.Queue(AHEAD)  # (item, None), or (END, exception or None)
    stopped = threading.Event()

    def put(entry: Any) -> bool:
        # A plain put would block forever if the consumer stopped while the queue is full.
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
            # Generators hold files open; they must be closed in the thread that runs them.
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
