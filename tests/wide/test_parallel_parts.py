"""Parts of a batch that are computed at the same time."""

import threading

import pytest
import torch

from seqclf.wide.parallel_parts import map_parts


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_keep_the_order_of_the_parts_and_each_part_has_one_thread(threads, monkeypatch):
    before = torch.get_num_threads()
    used = set()

    def double(values):
        used.add((torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        return 2 * values

    try:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            results = map_parts(double, [(torch.full((1,), float(part)),) for part in range(7)])
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.cat(results).tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert used == {(1, False, True)}


def test_an_error_in_a_part_is_raised_and_the_threads_are_restored():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="broken"):
            map_parts(lambda values: (_ for _ in ()).throw(ValueError("broken")), [(torch.ones(1),)] * 4)
        assert torch.get_num_threads() == 2
        assert threading.active_count() == 1 or not any("ThreadPool" in name.name for name in threading.enumerate())
    finally:
        torch.set_num_threads(before)
