"""Generated card payments: fraud differs from honest payments only in the order of events.

This is no model of real fraud. The dataset is an event log with the columns card, time, merchant (the kind of shop),
amount, channel (chip, contactless, online, atm), country, and the label `fraud` ('yes' or 'no') of the card.

Ordinary events: a card has a home country in `HOME`, a spending level, and a log-normal number of at least `SHORTEST`
events, whose merchant, amount and channel do not depend on their position. One in twelve comes at most 10 minutes after
the previous one. One in five online payments goes to a country in `FAR`, all others to countries in `HOME`.

Planted events: every fraud card also has the events of one of three patterns. One in ten honest cards is a decoy: it
has the *same* events and gaps as a fraud card of the pattern, but in a harmless order.

  testing   Three online payments, each at most 10 minutes after the previous event: two below 2.00, one of 300 or
            more. The order in a fraud is small, small, large (a stolen number is tested, then used). In a decoy, the
            large payment is the first or the second, such as a device and then its apps.
  burst     Four payments for gift cards, each at most 10 minutes after the previous event. They are consecutive in a
            fraud. In a decoy, there are ordinary events between any two of them.
  travel    A payment at home, two in the same far country, and one at home, all with the chip of the card. The gaps
            before them are short, short, long, long in a fraud: the first far payment comes within two hours of one at
            home. In a decoy, they are short, long, short, long: eight hours or more pass before each change of country.

The files planted_train.parquet, planted_validation.parquet and planted_test.parquet list the planted events, apart so
that no model is trained on them by mistake: the card, the position of the event in the card (counted from 1), the
pattern and the label.

Statistics without order find cards with planted events, but cannot separate fraud cards from decoys: with 1 fraud card
in 100, one in eleven cards with planted events is a fraud card. An honest card stays 'no' even if its ordinary events
form a pattern by chance.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHORTEST = 4  # minimum number of ordinary events of a card, enough to separate the four planted events of a decoy
DECOY_SHARE = 0.1
EVENTS_AT_ONCE = 1_500_000  # approximate number of events in memory at once
SPLITS = ["train", "validation", "test"]

# `MERCHANTS`: dict merchant → (weight in random draws, typical amount, key of `SELLS`).
MERCHANTS = {
    "grocery": (190, 32.0, "shop"),
    "restaurant": (90, 38.0, "shop"),
    "fast food": (70, 12.0, "shop"),
    "cafe": (70, 6.0, "shop"),
    "bakery": (60, 7.0, "shop"),
    "fuel": (55, 55.0, "shop"),
    "pharmacy": (40, 18.0, "shop"),
    "drugstore": (35, 22.0, "shop"),
    "public transport": (40, 5.0, "shop"),
    "parking": (25, 4.0, "shop"),
    "bar": (25, 24.0, "shop"),
    "hairdresser": (12, 40.0, "shop"),
    "kiosk": (25, 6.0, "shop"),
    "cash": (50, 100.0, "cash"),
    "clothing": (40, 55.0, "both"),
    "books": (20, 20.0, "both"),
    "cinema": (15, 24.0, "both"),
    "furniture": (8, 220.0, "both"),
    "hardware": (15, 45.0, "both"),
    "sports": (12, 60.0, "both"),
    "electronics": (15, 180.0, "both"),
    "jewellery": (4, 250.0, "both"),
    "gift cards": (8, 45.0, "both"),
    "taxi": (15, 18.0, "both"),
    "hotel": (10, 160.0, "both"),
    "airline": (6, 280.0, "online"),
    "marketplace": (50, 30.0, "online"),
    "food delivery": (30, 26.0, "online"),
    "streaming": (20, 9.0, "online"),
    "app store": (25, 5.0, "online"),
    "games": (12, 15.0, "online"),
    "charity": (6, 15.0, "online"),
}
CHANNELS = ["chip", "contactless", "online", "atm"]
HOME = ["DE", "FR", "IT", "ES", "NL", "AT", "BE", "PL"]
FAR = ["US", "BR", "JP", "TH", "ZA", "AU"]
NAMES = {
    "merchant": list(MERCHANTS),
    "channel": CHANNELS,
    "country": HOME + FAR,
    "fraud": ["no", "yes"],
    "pattern": ["testing", "burst", "travel"],  # same order as in `PATTERNS`
}

# An entry of these tables is a weighted random draw of a code, which has as many entries as its weight.
MERCHANT_TABLE = np.repeat(np.arange(len(MERCHANTS)), [weight for weight, _, _ in MERCHANTS.values()]).astype(np.int8)
TYPICAL_AMOUNT = np.array([amount for _, amount, _ in MERCHANTS.values()])
SELLS = {"shop": [0] * 4 + [1] * 6, "both": [0] * 2 + [1] * 4 + [2] * 4, "online": [2] * 10, "cash": [3] * 10}
CHANNEL_TABLE = np.array([SELLS[where] for _, _, where in MERCHANTS.values()], np.int8)

# Dict column → Arrow type of the column. None marks a column of texts that `NAMES` lists.
EVENTS: dict[str, pa.DataType | None] = {
    "card": pa.int64(),
    "time": pa.timestamp("ms"),
    "merchant": None,
    "amount": pa.float64(),
    "channel": None,
    "country": None,
    "fraud": None,
}
PLANTED: dict[str, pa.DataType | None] = {"card": pa.int64(), "position": pa.int64(), "pattern": None, "fraud": None}

Columns = dict[str, np.ndarray]


def write(folder: Path, rows: dict[str, int], mean_length: float, fraud_share: float, seed: int) -> None:
    """Write the events of generated cards to `train.parquet`, `validation.parquet` and `test.parquet`.

    The planted events go to `planted_train.parquet` and so on. Events are sorted by time within a chunk of cards, so
    cards interleave as in a real log. Every chunk of a split has its own seed, so the data of a split does not depend
    on the size of others.

    `rows`: dict split → number of cards. `mean_length`: mean number of ordinary events per card, at least 4.
    `fraud_share`: fraction of fraud cards. Raises ValueError if `mean_length` or `fraud_share` is out of range.
    """
    if mean_length < SHORTEST:
        raise ValueError(f"mean_length={mean_length}: must be at least {SHORTEST}")
    if not 0 <= fraud_share <= 1:
        raise ValueError(f"fraud_share={fraud_share}: must be in [0, 1]")
    schema, planted_schema = _schema(EVENTS), _schema(PLANTED)
    cards_at_once = max(1, int(EVENTS_AT_ONCE / mean_length))
    for split, count in rows.items():
        number = SPLITS.index(split)
        with (
            _writer(folder / f"{split}.parquet", schema) as file,
            _writer(folder / f"planted_{split}.parquet", planted_schema) as planted_file,
        ):
            for chunk, first in enumerate(range(0, count, cards_at_once)):
                generator = np.random.default_rng([seed, number, chunk])
                cards = np.arange(first, min(first + cards_at_once, count)) + (number + 1) * 10**9
                events = _log(generator, cards, mean_length, fraud_share)
                file.write_table(_table(events, schema))
                planted = events["pattern"] >= 0
                planted_file.write_table(_table({name: events[name][planted] for name in events}, planted_schema))


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    # The Arrow schema is not stored in the file. Readers therefore return dictionary columns as plain strings.
    return pq.ParquetWriter(path, schema, use_dictionary=[*(NAMES.keys() & {*schema.names})], store_schema=False)


def _schema(kinds: dict[str, pa.DataType | None]) -> pa.Schema:
    """Types that are None become dictionaries of strings."""
    return pa.schema([(name, kind or pa.dictionary(pa.int8(), pa.string())) for name, kind in kinds.items()])


def _table(events: Columns, schema: pa.Schema) -> pa.Table:
    columns = [_column(events[name], NAMES.get(name), schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: np.ndarray, names: list[str] | None, kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(values, names) if names else pa.array(values).cast(kind)


def _log(generator: np.random.Generator, cards: np.ndarray, mean_length: float, fraud_share: float) -> Columns:
    """Return dict column → (events,) values, sorted by time."""
    fraud = generator.random(len(cards)) < fraud_share
    planted = fraud | (generator.random(len(cards)) < DECOY_SHARE)
    pattern = np.where(planted, generator.integers(len(PATTERNS), size=len(cards)), -1)
    spread = 0.8
    drawn = generator.lognormal(np.log(mean_length) - spread**2 / 2, spread, len(cards))
    ordinary = np.maximum(SHORTEST, np.rint(drawn).astype(np.int64))
    lengths = ordinary + np.append([len(order) for _, order, _ in PATTERNS], 0)[pattern]
    starts = np.cumsum(lengths) - lengths
    home = generator.integers(len(HOME), size=len(cards)).astype(np.int8)
    events = _ordinary_events(generator, lengths, home)
    events["pattern"] = np.full(int(lengths.sum()), -1, np.int8)
    for number, (draw, fraud_order, decoy_orders) in enumerate(PATTERNS):
        holders = np.flatnonzero(pattern == number)  # cards with this pattern
        positions = _positions(generator, ordinary[holders], len(fraud_order), fraud[holders] | bool(decoy_orders))
        orders = np.array(decoy_orders or [fraud_order])[generator.integers(len(decoy_orders) or 1, size=len(holders))]
        orders = np.where(fraud[holders, None], fraud_order, orders)
        for name, values in draw(generator, home[holders]).items():
            events[name][starts[holders, None] + positions] = np.take_along_axis(values, orders, axis=1)
        events["pattern"][starts[holders, None] + positions] = number
    elapsed = np.cumsum(events.pop("gap"))
    begin = generator.integers(180 * 86_400, size=len(cards)) - elapsed[starts]
    seconds = elapsed + np.repeat(begin, lengths) + int(np.datetime64("2025-01-01", "s").astype(np.int64))
    order = np.argsort(seconds, kind="stable")
    events |= {"time": seconds * 1000, "card": np.repeat(cards, lengths)}
    events["fraud"] = np.repeat(fraud.astype(np.int8), lengths)
    events["position"] = np.arange(1, len(seconds) + 1) - np.repeat(starts, lengths)
    return {name: values[order] for name, values in events.items()}


def _ordinary_events(generator: np.random.Generator, lengths: np.ndarray, home: np.ndarray) -> Columns:
    """Return dict column → (events,) values, card after card: names as codes, gaps in seconds.

    `lengths`: (cards,) number of events. `home`: (cards,) code of the home country.
    """
    count = int(lengths.sum())
    merchant = MERCHANT_TABLE[generator.integers(len(MERCHANT_TABLE), size=count, dtype=np.uint16)]
    channel = CHANNEL_TABLE[merchant, generator.integers(10, size=count, dtype=np.uint8)]
    spending = np.repeat(generator.lognormal(0, 0.4, len(lengths)), lengths)
    amount = TYPICAL_AMOUNT[merchant] * spending * np.exp(0.6 * generator.standard_normal(count))
    country = np.repeat(home, lengths)
    abroad = generator.integers(100, size=count, dtype=np.uint8)
    far = generator.integers(len(HOME), len(HOME + FAR), size=count, dtype=np.int8)
    near = generator.integers(len(HOME), size=count, dtype=np.int8)
    country = np.where((channel == 2) & (abroad < 20), far, np.where(abroad > 96, near, country))
    gap = np.exp(np.log(43_200) + 1.2 * generator.standard_normal(count)).astype(np.int64) + 1
    short = generator.integers(12, size=count, dtype=np.uint8) == 0
    gap[short] = generator.integers(20, 601, int(short.sum()))
    return {
        "merchant": merchant,
        "amount": np.maximum(0.5, np.rint(amount * 100) / 100),
        "channel": channel,
        "country": country,
        "gap": gap,
    }


def _positions(generator: np.random.Generator, ordinary: np.ndarray, size: int, adjacent: np.ndarray) -> np.ndarray:
    """Return the ascending (cards, size) positions of planted events in their card, never the first.

    `ordinary`: (cards,) number of ordinary events. `adjacent`: (cards,) mask of cards with consecutive planted events.
    """
    index = np.arange(size)
    in_a_row = generator.integers(1, ordinary + 1)[:, None] + index
    gaps = np.sort(generator.integers(0, (ordinary - size + 1)[:, None], (len(ordinary), size)), axis=1)
    scattered = gaps + 1 + 2 * index  # at least one ordinary event lies between two planted events
    return np.where(adjacent[:, None], in_a_row, scattered)


def _codes(generator: np.random.Generator, names: list[str], shape: tuple[int, int]) -> np.ndarray:
    codes = np.array([NAMES["merchant"].index(name) for name in names], np.int8)
    return codes[generator.integers(len(names), size=shape)]


def _amounts(generator: np.random.Generator, low: float, high: float, shape: tuple[int, int]) -> np.ndarray:
    """Log-uniform in [low, high), rounded down to cents."""
    return np.floor(np.exp(generator.uniform(np.log(low), np.log(high), shape)) * 100) / 100


def _testing(generator: np.random.Generator, home: np.ndarray) -> Columns:
    small, large = (len(home), 2), (len(home), 1)
    small_merchants = _codes(generator, ["app store", "streaming", "charity"], small)
    large_merchants = _codes(generator, ["electronics", "jewellery", "airline"], large)
    return {
        "merchant": np.hstack([small_merchants, large_merchants]),
        "amount": np.hstack([_amounts(generator, 0.5, 2, small), _amounts(generator, 300.01, 1500, large)]),
        "channel": np.full((len(home), 3), CHANNELS.index("online"), np.int8),
        "country": np.repeat(home[:, None], 3, axis=1),
        "gap": generator.integers(20, 601, (len(home), 3)),
    }


def _burst(generator: np.random.Generator, home: np.ndarray) -> Columns:
    shape = (len(home), 4)
    return {
        "merchant": _codes(generator, ["gift cards"], shape),
        "amount": _amounts(generator, 50, 200, shape),
        "channel": np.full(shape, CHANNELS.index("contactless"), np.int8),
        "country": np.repeat(home[:, None], 4, axis=1),
        "gap": generator.integers(20, 601, shape),
    }


def _travel(generator: np.random.Generator, home: np.ndarray) -> Columns:
    shape = (len(home), 4)
    abroad = generator.integers(len(HOME), len(HOME + FAR), len(home), dtype=np.int8)
    soon, later = (generator.integers(*span, (len(home), 2)) for span in ((1200, 7201), (28_800, 172_801)))
    return {
        "merchant": _codes(generator, ["restaurant", "clothing", "taxi", "grocery"], shape),
        "amount": _amounts(generator, 15, 150, shape),
        "channel": np.full(shape, CHANNELS.index("chip"), np.int8),
        "country": np.stack([home, abroad, abroad, home], axis=1),
        "gap": np.hstack([soon, later]),
    }


# A pattern: what draws the events, their order on a fraud card, and the orders on a decoy, where none means scattered.
PATTERNS: list[tuple[Callable[[np.random.Generator, np.ndarray], Columns], list[int], list[list[int]]]] = [
    (_testing, [0, 1, 2], [[2, 0, 1], [0, 2, 1]]),
    (_burst, [0, 1, 2, 3], []),
    (_travel, [0, 1, 2, 3], [[0, 2, 1, 3]]),
]
