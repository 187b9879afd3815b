"""Config values are of the kind and in the range that conf/ implies."""

import copy

import pytest

from seqclf.config.checks import RANGES, check_ranges, check_types, label_text
from seqclf.errors import InputError

DEFAULTS = {
    "seed": 0,
    "patience": 10,
    "export": True,
    "rate": 0.5,
    "name": "a",
    "open": None,
    "trainer": {"max_epochs": 30, "devices": "auto"},
    "data": {"fields": {"a": "category"}, "split": {"by": "random"}},
}


def with_value(key, value):
    """A copy of the defaults with one dotted key changed."""
    changed = copy.deepcopy(DEFAULTS)
    *above, last = key.split(".")
    inner = changed
    for name in above:
        inner = inner[name]
    inner[last] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 7),
        ("rate", 1),
        ("open", [1]),
        ("name", 3),
        ("trainer.devices", 2),
        ("patience", None),
        ("trainer.max_epochs", None),
        ("trainer.anything", 3),
        ("data.fields", {"b": {"kind": "number"}}),
    ],
)
def test_values_of_the_default_kind_pass(key, value):
    check_types(with_value(key, value), DEFAULTS)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", "abc", "seed=abc: must be a whole number"),
        ("seed", True, "seed=True: must be a whole number"),
        ("seed", 1.5, "seed=1.5: must be a whole number"),
        ("seed", None, "seed=null: must be a whole number"),
        ("export", "maybe", "export=maybe: must be true or false"),
        ("rate", "fast", "rate=fast: must be a number"),
        ("name", ["a"], r"name=\['a'\]: must be a text"),
        ("data.split", None, "data.split=null: must be a mapping"),
        ("data.split.by", None, "data.split.by=null: must be a text"),
        ("data.splitt", {}, "data.splitt: no such key"),
    ],
)
def test_values_of_another_kind_are_refused_by_key(key, value, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check_types(with_value(key, value), DEFAULTS)


@pytest.mark.parametrize("key", ["batching.max_sequences", "batching.overhead", "trainer.precision"])
def test_null_means_none_where_it_may(key):
    group, name = key.split(".")
    check_types({group: {name: None}}, {group: {name: 2.0}})


def test_a_removed_key_is_named():
    with pytest.raises(InputError, match=r"^seed: is missing; do not remove it with ~"):
        check_types({key: value for key, value in DEFAULTS.items() if key != "seed"}, DEFAULTS)


@pytest.mark.parametrize("key", [key for key, (low, _) in RANGES.items() if low >= 0])
def test_numbers_below_their_range_are_refused_by_key(key):
    config = {"trainer": {"max_epochs": 1}}
    *above, last = key.split(".")
    inner = config
    for name in above:
        inner = inner.setdefault(name, {})
    inner[last] = -1
    with pytest.raises(InputError, match=f"^{key}=-1: must be "):
        check_ranges(config)


def test_labels_read_as_the_data_has_them():
    assert [label_text(value) for value in (True, False, 3, "True", "é")] == ["true", "false", "3", "True", "é"]
