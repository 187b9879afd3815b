"""Settings of a checkpoint against those of the run that resumes it."""

import pytest

from seqclf.batching.resume_settings import POSITION, check_same_batches
from seqclf.errors import InputError
from seqclf.system.state_validation import require


@pytest.mark.parametrize("trained", [0, 5])
def test_the_ranks_that_train_may_change_and_the_planned_ranks_only_between_epochs(trained):
    state = {"settings": {"seed": 0, "batching.ranks": 2}, "trained": trained}
    assert check_same_batches("checkpoint=a", state, {"seed": 0}) == []
    if trained:
        with pytest.raises(InputError, match=r"inside an epoch.* batching\.ranks=2;"):
            check_same_batches("checkpoint=a", state, {"seed": 0, "batching.ranks": 1})
    else:
        assert check_same_batches("checkpoint=a", state, {"seed": 0, "batching.ranks": 1}) == ["batching.ranks=2"]


def test_a_checkpoint_without_its_planned_ranks_is_rejected():
    require({"settings": {"seed": 0, "batching.ranks": 2}, "trained": 0}, POSITION)
    with pytest.raises(InputError, match=r"settings: must be settings with batching\.ranks"):
        require({"settings": {"trainer.devices": 2, "seed": 0}, "trained": 0}, POSITION)
