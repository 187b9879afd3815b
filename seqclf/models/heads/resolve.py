"""Rules of `model=auto`: the settings of a network that follow from the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from seqclf.data.field_spec import token_specs
from seqclf.documents.formatting import enumeration
from seqclf.errors import InputError
from seqclf.models.frozen.front_end import counted_fields, static_statistics, statistic_size
from seqclf.models.frozen.kernel_bank import OUTPUTS, choose_dilations

AUTO: Literal["auto"] = "auto"
NOT_RESOLVED = ("cache",)  # settings whose value "auto" stays
MIN_ORDER = 0.05  # autocorrelation above which numbers have an order; shuffled tokens have about .015
WINDOWS = 32  # windows of a sequence of median length, as many steps as a recurrent layer learns well
DILATIONS = 12
WORDS = 1000  # size of a vocabulary from which on ids are taken for words
# Words need larger vectors and more dropout than letters or events.
OF_EVENTS = {"embedding_size": 64, "projection_size": 64, "hidden_size": 64, "feature_dropout": 0.25, "dropout": 0.4}
OF_WORDS = {"embedding_size": 256, "projection_size": 128, "hidden_size": 128, "feature_dropout": 0.4, "dropout": 0.5}
DROPOUT_ROWS = 2000  # training rows from which on dropout of events falls, as one over the square root of their number
# Rows or features up to which ridge regression is solved in closed form, and cells of its matrix.
MAX_SIDE, MAX_CELLS = 6000, 250_000_000


def resolve_settings(settings: Mapping[str, Any], dataset: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return settings of `HeadsClassifier` with values for "auto", and a text that explains them, empty if none is.

    `dataset`: see `Dataset.description()`.
    """
    if all(value != AUTO for name, value in settings.items() if name not in NOT_RESOLVED):
        return dict(settings), ""
    if any(field["kind"] == "parents" for field in dataset["fields"]):
        return _tree_settings(settings), "trees: a Tree-LSTM (model=tree_lstm)"
    fields, sequences = token_specs(dataset["fields"]), dataset["sequences"]
    static = static_statistics(dataset["fields"])
    numbers = [field for field in fields if field["kind"] == "number"]
    vocabularies = [field["size"] for field in fields if field["kind"] in ("category", "bag")]
    order, median = sequences["order"], sequences["median"]
    has_masks = any(field.get("masked") for field in numbers)
    has_order = bool(numbers) and not has_masks and order is not None and order > MIN_ORDER
    chosen: dict[str, Any] = {
        "dilations": choose_dilations(median, DILATIONS) if has_order else [],
        # In one direction, the bundle has a step, which reads token by token.
        "window": max(1, round(median / WINDOWS)) if has_order and settings["bidirectional"] else 1,
        "convolution": 0 if numbers else 3,
        **(OF_WORDS if max(vocabularies, default=0) > WORDS else _of_events(dataset["rows"]["train"])),
    }
    found = {name: chosen.get(name, value) if value == AUTO else value for name, value in settings.items()}
    if found["heads"] == AUTO:
        found["heads"] = ["recurrent"]
        if found["dilations"] and numbers:
            found["heads"] += ["kernels", *(["statistics"] if static else [])]
        elif numbers or static or counted_fields(fields):
            found["heads"] += ["linear", "statistics"]
        if any(field["kind"] == "category" for field in fields):
            found["heads"] += ["ngrams"]
    if found["closed_form"] == AUTO:
        features = len(found["dilations"]) * OUTPUTS * found["biases"] + statistic_size(dataset["fields"])
        rows = dataset["rows"]["train"]
        found["closed_form"] = min(rows, features) <= MAX_SIDE and rows * features <= MAX_CELLS
    return found, _explanation(found, numbers, vocabularies, order, median, has_masks)


def _of_events(rows: int) -> dict[str, float]:
    share = min(1.0, (DROPOUT_ROWS / max(1, rows)) ** 0.5)
    falling = ("feature_dropout", "dropout")
    return {name: round(value * share, 3) if name in falling else value for name, value in OF_EVENTS.items()}


def _tree_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of model=tree_lstm, with the values that `settings` gives to keys of both models."""
    for name in ("heads", "window", "dilations", "convolution", "projection_size"):
        if settings[name] != AUTO:
            raise InputError(f"model.{name}={settings[name]}", "is not used for trees", "remove it")
    shared = ("embedding_size", "hidden_size", "dropout", "token_dropout", "members")
    return {
        "_target_": "seqclf.models.trees.tree_classifier.TreeClassifier",
        "encoder": {"_target_": "seqclf.models.trees.tree_lstm.TreeLSTM"},
        **{name: settings[name] for name in shared if settings.get(name, AUTO) != AUTO},
    }


def _explanation(
    found: Mapping[str, Any], numbers: list[Any], vocabularies: list[int], order: float | None, median: int, masks: bool
) -> str:
    kinds = []
    if numbers:
        what = "with missing values" if masks else f"with order (autocorrelation {order:.2f})"
        kinds.append(
            f"numbers {what if masks or found['dilations'] else f'without order (autocorrelation {order:.2f})'}"
        )
    if vocabularies:
        kinds.append(f"{max(vocabularies):,} {'words' if max(vocabularies) > WORDS else 'ids'}")
    names = [entry if isinstance(entry, str) else str(entry.get("_target_")) for entry in found["heads"]]
    tokens = "1 token" if found["window"] == 1 else f"{found['window']} tokens"
    windows = f"kernel windows of {tokens}, " if found["dilations"] and numbers else ""
    return f"{enumeration(kinds)}, median {median:,} tokens: {windows}heads {' + '.join(names)}"
