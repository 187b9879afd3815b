"""Generated card payments follow the documented rules, and only the order of events shows fraud."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from seqclf.data.builtin import transactions
from seqclf.data.builtin.transactions import write

ROWS = {"train": 3000, "validation": 200, "test": 500}
FAR = {"US", "BR", "JP", "TH", "ZA", "AU"}


def read(folder, split):
    """Events of each card, sorted by time: card → list of rows."""
    cards = {}
    for event in pq.read_table(folder / f"{split}.parquet").to_pylist():
        cards.setdefault(event["card"], []).append(event)
    return cards


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transactions")
    write(folder, rows=ROWS, mean_length=12, fraud_share=0.05, seed=0)
    return {split: read(folder, split) for split in ROWS}


def patterns_in(events):
    """Names of the documented patterns in the events of a card."""
    names = set()
    minutes = [(event["time"] - before["time"]).total_seconds() / 60 for before, event in pairwise(events)]
    for end in range(1, len(events)):
        before, event = events[end - 1], events[end]
        at_home = before["channel"] != "online" and before["country"] not in FAR
        far_away = event["channel"] != "online" and event["country"] in FAR
        if at_home and far_away and minutes[end - 1] <= 120:
            names.add("travel")
        last = events[max(0, end - 2) : end + 1]
        if len(last) == 3 and all(e["channel"] == "online" for e in last) and max(minutes[end - 2 : end]) <= 10:
            amounts = [e["amount"] for e in last]
            if max(amounts[:2]) < 2 and amounts[2] >= 300:
                names.add("testing")
        if end >= 4 and max(minutes[end - 4 : end]) <= 10:
            last = events[end - 3 : end + 1]
            if all(e["merchant"] == "gift cards" for e in last):
                names.add("burst")
    return names


def score(cards):
    """Recall and precision of the rules."""
    flagged = {card for card, events in cards.items() if patterns_in(events)}
    frauds = {card for card, events in cards.items() if events[0]["fraud"] == "yes"}
    return len(flagged & frauds) / len(frauds), len(flagged & frauds) / max(1, len(flagged))


def test_the_rules_find_the_frauds(splits):
    recall, precision = score(splits["train"])
    assert recall >= 0.95 and precision >= 0.95
    counts = Counter(name for events in splits["train"].values() for name in patterns_in(events))
    assert set(counts) == {"testing", "burst", "travel"} and min(counts.values()) > 30


def test_the_rules_fail_on_shuffled_events(splits):
    """The payments of a card are shuffled, their times are not."""
    generator, shuffled = np.random.default_rng(0), {}
    for card, events in splits["train"].items():
        order = generator.permutation(len(events))
        shuffled[card] = [{**events[i], "time": event["time"]} for i, event in zip(order, events, strict=True)]
    recall, precision = score(shuffled)
    assert recall < 0.25 and precision < 0.6


def test_cards_are_unique_over_splits_and_hold_one_label(splits):
    assert {split: len(cards) for split, cards in splits.items()} == ROWS
    assert len(set().union(*splits.values())) == sum(ROWS.values())
    assert all(len({event["fraud"] for event in events}) == 1 for cards in splits.values() for events in cards.values())


def test_cards_interleave_in_order_of_time_and_never_pay_twice_at_once(splits, tmp_path):
    write(tmp_path, rows={"train": 100}, mean_length=12, fraud_share=0.05, seed=0)
    table = pq.read_table(tmp_path / "train.parquet")
    times, cards = table["time"].to_numpy(), table["card"].to_numpy()
    assert np.all(np.diff(times) >= np.timedelta64(0)) and np.count_nonzero(np.diff(cards)) > 0.5 * len(cards)
    for events in splits["train"].values():
        assert all(before["time"] < event["time"] for before, event in pairwise(events))


def test_a_split_depends_on_the_seed_but_not_on_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(transactions, "EVENTS_AT_ONCE", 600)  # 50 cards at once
    tables = []
    for number, (rows, seed) in enumerate(
        [({"train": 120, "test": 30}, 0), ({"test": 90, "train": 120}, 0), ({"train": 170}, 0), ({"train": 120}, 1)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, rows=rows, mean_length=12, fraud_share=0.05, seed=seed)
        tables.append(pq.read_table(folder / "train.parquet"))
    first, second, longer, other = tables
    assert first.equals(second) and not first.equals(other)
    assert len(set(longer["card"].to_pylist())) == 170
    in_full_chunks = np.isin(
        first["card"].to_numpy(), range(10**9, 10**9 + 100)
    )  # full chunks are the same in a larger split
    assert first.filter(in_full_chunks).equals(longer.slice(0, int(in_full_chunks.sum())))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The events of training cards, and the positions of the planted ones by card."""
    folder = tmp_path_factory.mktemp("planted")
    write(folder, rows={"train": 1500}, mean_length=12, fraud_share=0.3, seed=3)
    rows = {}
    for row in pq.read_table(folder / "planted_train.parquet").to_pylist():
        rows.setdefault(row["card"], []).append(row)
    return read(folder, "train"), rows


def test_planted_events_are_listed_by_their_position_in_time(planted):
    cards, rows = planted
    kept = {"testing": 0, "burst": 0, "travel": 0}
    for card, events in rows.items():
        (pattern,) = {event["pattern"] for event in events}
        (fraud,) = {event["fraud"] for event in events}
        assert fraud == cards[card][0]["fraud"] and len(events) == (3 if pattern == "testing" else 4)
        tokens = [cards[card][event["position"] - 1] for event in events]
        if pattern == "burst":
            assert {token["merchant"] for token in tokens} == {"gift cards"}
        elif pattern == "testing":
            assert {token["channel"] for token in tokens} == {"online"}
            assert sorted(token["amount"] >= 300 for token in tokens) == [False, False, True]
        else:
            assert sum(token["country"] in FAR for token in tokens) == 2
        if fraud == "yes":  # in a row: the events before and after complete no pattern
            positions = [event["position"] for event in events]
            assert positions == list(range(positions[0], positions[0] + len(positions)))
            kept[pattern] += pattern in patterns_in(cards[card][max(0, positions[0] - 2) : positions[-1]])
    assert min(kept.values()) > 100
    assert {card for card, events in cards.items() if events[0]["fraud"] == "yes"} <= rows.keys()


def test_the_files_of_events_do_not_say_which_were_planted(planted, tmp_path):
    write(tmp_path, rows={"train": 10}, mean_length=12, fraud_share=0.5, seed=3)
    names = ["card", "time", "merchant", "amount", "channel", "country", "fraud"]
    assert pq.read_schema(tmp_path / "train.parquet").names == names
