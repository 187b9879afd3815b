"""Generated card payments with fraud that shows only in the order of events. No real data, no model of real fraud.

The result is a log of events: card, time, merchant (the kind of shop), amount, channel (chip, contactless, online,
atm), country, and the label `fraud` ('yes' or 'no'). The label belongs to the card and is the same in all its rows.

Ordinary events. A card has a home country in `HOME`, a level of spending, and a log-normal number of events, at least
`SHORTEST`. Merchants, amounts and channels are drawn independently of each other's order. One gap in twelve is short.
One online payment in five goes to a country in `FAR`. All other ordinary payments stay in `HOME`.

Planted events. A fraud card holds one of three patterns, set between its ordinary events. So does one honest card in
ten, a decoy: the *same* events, each with the gap before it, in a harmless order. Both kinds have the same number of
events, so only the order tells them apart:

  testing   three payments online, each at most 10 minutes after the one before: two below 2.00, one of 300 or more.
            Fraud: small, small, large (a stolen number is tried out, then used). Decoys: the large one comes first or
            in the middle (a device, then its apps).
  burst     four payments for gift cards, each at most 10 minutes after the event before it. Fraud: all in a row.
            Decoys: ordinary events lie between any two of them.
  travel    at home, then two payments in the same far country, then home again, all four with the card in hand. The
            gaps before them are short, short, long, long in a fraud: far away at most two hours after a payment at
            home. In decoys they are short, long, short, long: eight hours or more to get there, eight or more back.

Which events were planted stands in files of its own, planted_train.parquet and so on, so that no training can read it:
a row for each, with the card, the position of the event among those of the card from 1, the pattern, and the label.

The presence of a pattern's events raises the odds of fraud, equally for each order. Pooled statistics of a card can
tell no more than that: with 1 fraud in 100 cards, one card in eleven that holds such events is a fraud. Sometimes
ordinary events complete a pattern by chance. Such a card is honest.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHORTEST = 4  # ordinary events, as many as the longest pattern has: the events of a scattered burst never touch
DECOY_SHARE = 0.1
EVENTS_AT_ONCE = 1_500_000  # of one chunk, which bounds the memory
SPLITS = ["train", "validation", "test"]

# merchant → (weight, typical amount, key of SELLS)
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
    "pattern": ["testing", "burst", "travel"],  # in the order of `PATTERNS`
}

# Tables of equally likely codes: a weighted draw is one uniform index.
MERCHANT_TABLE = np.repeat(np.arange(len(MERCHANTS)), [weight for weight, _, _ in MERCHANTS.values()]).astype(np.int8)
TYPICAL_AMOUNT = np.array([amount for _, amount, _ in MERCHANTS.values()])
SELLS = {"shop": [0] * 4 + [1] * 6, "both": [0] * 2 + [1] * 4 + [2] * 4, "online": [2] * 10, "cash": [3] * 10}
CHANNEL_TABLE = np.array([SELLS[where] for _, _, where in MERCHANTS.values()], np.int8)

# Column → its type, None for names in `NAMES`.
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
    """Write `train.parquet`, `validation.parquet` and `test.parquet` with the events of `rows[split]` cards each.

    Next to each of them, `planted_train.parquet` and so on list the events of the patterns.

    Cards are written in chunks, each sorted by time, so cards interleave as in a log. Every chunk has another seed, so
    a split does not depend on the size of the others.

    `mean_length`: mean number of ordinary events per card, at least 4. Cards below SHORTEST are filled up to it.
    `fraud_share`: fraction of cards. Raises ValueError if one of them is out of range.
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
    # Without the Arrow schema, dictionaries are read as plain strings.
    return pq.ParquetWriter(path, schema, use_dictionary=[*(NAMES.keys() & {*schema.names})], store_schema=False)


def _schema(kinds: dict[str, pa.DataType | None]) -> pa.Schema:
    """Columns of these types, and of names in `NAMES` where a type is None."""
    return pa.schema([(name, kind or pa.dictionary(pa.int8(), pa.string())) for name, kind in kinds.items()])


def _table(events: Columns, schema: pa.Schema) -> pa.Table:
    columns = [_column(events[name], NAMES.get(name), schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: np.ndarray, names: list[str] | None, kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(values, names) if names else pa.array(values).cast(kind)


def _log(generator: np.random.Generator, cards: np.ndarray, mean_length: float, fraud_share: float) -> Columns:
    """Events of `cards`, sorted by time: column → (events,)."""
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
        holders = np.flatnonzero(pattern == number)  # cards
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
    """Codes of merchants, channels and countries, amounts, and gaps in seconds: column → (events,), card by card."""
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
    """(cards, size) ascending positions of a pattern's events among the other events of each card, never the first.

    `ordinary`: (cards,) number of other events. `adjacent`: (cards,) mask of cards whose pattern is in a row.
    """
    index = np.arange(size)
    in_a_row = generator.integers(1, ordinary + 1)[:, None] + index
    gaps = np.sort(generator.integers(0, (ordinary - size + 1)[:, None], (len(ordinary), size)), axis=1)
    scattered = gaps + 1 + 2 * index  # at least one ordinary event between two of the pattern
    return np.where(adjacent[:, None], in_a_row, scattered)


def _codes(generator: np.random.Generator, names: list[str], shape: tuple[int, int]) -> np.ndarray:
    """Random codes of these merchants."""
    return np.array([NAMES["merchant"].index(name) for name in names], np.int8)[
        generator.integers(len(names), size=shape)
    ]


def _amounts(generator: np.random.Generator, low: float, high: float, shape: tuple[int, int]) -> np.ndarray:
    """Log-uniform amounts in [low, high), in units of a cent."""
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


# (function that draws a pattern's events, their order in a fraud, orders of decoys). Without orders, the events of
# decoys are scattered.
PATTERNS: list[tuple[Callable[[np.random.Generator, np.ndarray], Columns], list[int], list[list[int]]]] = [
    (_testing, [0, 1, 2], [[2, 0, 1], [0, 2, 1]]),
    (_burst, [0, 1, 2, 3], []),
    (_travel, [0, 1, 2, 3], [[0, 2, 1, 3]]),
]
