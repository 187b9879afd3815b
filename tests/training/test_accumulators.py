"""What is kept of an epoch, over two processes that see different rows."""

import torch
from torch import distributed, multiprocessing

from seqclf.training.accumulators import Ranks, Tally

LOGITS = torch.arange(14.0).reshape(7, 2).flip(1)
LABELS = torch.tensor([0, 1, 1, 0, 1, 0, 0])
ROWS = (slice(0, 5), slice(5, 7))


def count(rank, folder):
    """A rank's part of an epoch, in two batches; what all ranks made of it goes to a file."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    tally, ranks, own = Tally(2), Ranks(), ROWS[rank]
    for part in (slice(0, 1), slice(1, None)):
        logits, labels = LOGITS[own][part], LABELS[own][part]
        tally.update(logits, labels, torch.tensor(float(rank)))
        ranks.update(logits, labels)
    torch.save((tally.compute(), ranks.compute()), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_every_rank_knows_the_rows_of_all(tmp_path):
    multiprocessing.spawn(count, (tmp_path,), nprocs=2)
    for rank in range(2):
        (confusion, loss), (logits, labels) = torch.load(tmp_path / f"{rank}.pt")
        assert confusion.sum() == 7 and confusion[:, 0].tolist() == [4, 3], "the first logit is the larger of each row"
        assert loss == torch.tensor(2 / 7), "the mean over rows, not over ranks or batches"
        assert sorted(zip(logits[:, 0].tolist(), labels.tolist(), strict=True)) == sorted(
            zip(LOGITS[:, 0].tolist(), LABELS.tolist(), strict=True)
        )
