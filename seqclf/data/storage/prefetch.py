"""An iterator that works ahead in a thread of its own, so that reading and computing share the cores."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
AHEAD = 2
END = object()


def prefetched(items: Iterable[Item]) -> Generator[Item, None, None]:
    """The same items, at most `AHEAD` of them made before they are asked for; errors come where they belong.

    Whoever stops early should close the iterator; the thread ends with the item it is making.
    """
    ready: queue.Queue[Any] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def put(entry: Any) -> bool:
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
