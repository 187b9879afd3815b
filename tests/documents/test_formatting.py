"""Numbers keep their meaning when they are rounded, and lists say how much they leave out."""

import pytest

from seqclf.documents.formatting import head_and_tail, percent


def test_shares_are_not_rounded_to_nothing_or_all():
    assert [percent(share) for share in (0, 1e-9, 0.0002, 0.5, 0.99999, 1)] == [
        "0%",
        "<0.01%",
        "0.02%",
        "50.0%",
        ">99.9%",
        "100%",
    ]


@pytest.mark.parametrize("count", [0, 1, 24, 25, 26, 1000])
def test_every_item_is_shown_or_counted(count):
    first, left_out, last = head_and_tail(range(count), 25)
    assert [*first, *last] == [*range(len(first)), *range(count - len(last), count)]
    assert len(first) + left_out + len(last) == count and len(first) + bool(left_out) + len(last) <= 25
