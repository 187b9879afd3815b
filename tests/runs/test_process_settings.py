"""Objects that garbage collections skip during training."""

import gc
import weakref

import pytest

from seqclf.runs.process_settings import frozen_objects


@pytest.fixture(autouse=True)
def nothing_frozen():
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


class Cycle:
    """Garbage that only the collector frees."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize("error", [False, True])
def test_objects_are_frozen_inside_the_block_alone(error):
    before = [{} for _ in range(1000)]
    seen = []
    try:
        with frozen_objects():
            seen.append(gc.get_freeze_count())
            # A collection looks at what gc.get_objects lists, which frozen objects are not part of.
            seen.append(any(one is before for one in gc.get_objects()))
            if error:
                raise RuntimeError
    except RuntimeError:
        assert error
    assert seen[0] > 1000 and seen[1] is False
    assert gc.get_freeze_count() == 0
    assert any(one is before for one in gc.get_objects())


def test_garbage_from_before_is_freed_first():
    dead = weakref.ref(Cycle())
    with frozen_objects():
        assert dead() is None


def test_garbage_made_inside_is_still_collected():
    with frozen_objects():
        dead = weakref.ref(Cycle())
        gc.collect()
        assert dead() is None


def test_objects_frozen_by_the_caller_stay_frozen():
    gc.freeze()
    count = gc.get_freeze_count()
    with frozen_objects():
        assert gc.get_freeze_count() == count
    assert gc.get_freeze_count() == count


def test_a_nested_block_leaves_the_end_to_the_outer_one():
    with frozen_objects():
        with frozen_objects():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_switched_off_collections_stay_off():
    gc.disable()
    with frozen_objects():
        assert gc.get_freeze_count() == 0 and not gc.isenabled()
    assert not gc.isenabled()
