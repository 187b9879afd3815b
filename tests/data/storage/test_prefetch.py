"""Prefetching yields the same items, errors included."""

import threading

import pytest

from seqclf.data.storage.prefetch import prefetched


def test_all_items_come_in_order():
    assert list(prefetched(range(1000))) == list(range(1000)) and list(prefetched([])) == []


def test_an_error_comes_after_the_items_before_it():
    def failing():
        yield 1
        raise KeyError("two")

    items = prefetched(failing())
    assert next(items) == 1
    with pytest.raises(KeyError, match="two"):
        next(items)


def test_stopping_early_ends_the_thread_and_closes_the_source():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    items = prefetched(endless())
    assert next(items) == 0
    items.close()
    assert closed.is_set()
