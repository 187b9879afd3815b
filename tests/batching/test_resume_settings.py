"""Settings of a checkpoint against those of the run that resumes it."""

import pytest

from seqclf.batching.resume_settings import check_same_batches, planned_ranks
from seqclf.errors import InputError

EARLIER = {"trainer.devices": 2, "trainer.num_nodes": 4, "seed": 0}  # as version 0.3 saved them


@pytest.mark.parametrize(
    ("saved", "ranks"),
    [({"batching.ranks": 3}, 3), (EARLIER, 8), ({"trainer.devices": 2}, 2), ({"seed": 0}, None), ({}, None)],
)
def test_a_checkpoint_says_for_how_many_ranks_its_steps_are_planned(saved, ranks):
    assert planned_ranks({"settings": saved}) == ranks
    assert planned_ranks({}) is None


@pytest.mark.parametrize("trained", [0, 5])
def test_the_ranks_that_train_may_change_and_the_planned_ranks_only_between_epochs(trained):
    state = {"settings": {"seed": 0, "batching.ranks": 2}, "trained": trained}
    assert check_same_batches("checkpoint=a", state, {"seed": 0}) == []
    if trained:
        with pytest.raises(InputError, match=r"inside an epoch.* batching\.ranks=2;"):
            check_same_batches("checkpoint=a", state, {"seed": 0, "batching.ranks": 1})
    else:
        assert check_same_batches("checkpoint=a", state, {"seed": 0, "batching.ranks": 1}) == ["batching.ranks=2"]


def test_steps_of_several_ranks_of_an_earlier_version_end_with_their_epoch():
    assert check_same_batches("checkpoint=a", {"settings": EARLIER, "trained": 0}, {"seed": 0}) == []
    with pytest.raises(InputError, match="8 ranks by an earlier version"):
        check_same_batches("checkpoint=a", {"settings": EARLIER, "trained": 5}, {"seed": 0})
    one = {"trainer.devices": 1, "trainer.num_nodes": 1, "seed": 0}
    assert check_same_batches("checkpoint=a", {"settings": one, "trained": 5}, {"seed": 0}) == []
