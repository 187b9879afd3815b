"""Settings of `model=auto`: given as flat keys, partly resolved from the data, and read by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Annotated, Any, ClassVar, Literal

from typing_extensions import get_type_hints

from seqclf.config.build import TargetOf
from seqclf.data.field_spec import id_specs, kind_of, number_specs, token_specs, tree_spec
from seqclf.documents.formatting import enumeration
from seqclf.errors import InputError
from seqclf.models.auto.front_end import crossed_sizes, plain_size
from seqclf.models.auto.head import Head
from seqclf.models.auto.kernel_bank import OUTPUTS, choose_dilations
from seqclf.models.auto.statistics_heads import static_ids
from seqclf.models.rnn.recurrent import CellName
from seqclf.settings.base import Count, DropoutShare, NonNegative, Seed, ZeroOrMore

AUTO: Literal["auto"] = "auto"
OF_HEAD = ("front", "fields", "num_classes")  # arguments that every head gets from its network
MIN_ORDER = 0.05  # autocorrelation above which numbers have an order; shuffled tokens have about .015
MIN_KERNEL_TOKENS = 8  # median number of tokens below which a sequence has no room for kernels
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
    """Return flat settings with values for "auto", and a text that explains them, empty if there are none.

    `dataset`: see `Dataset.description()`.
    """
    if AUTO not in settings.values():
        return dict(settings), ""
    if tree_spec(dataset["fields"]):
        return _tree_settings(settings), "trees: a Tree-LSTM (model=tree_lstm)"
    specs, sequences = token_specs(dataset["fields"]), dataset["sequences"]
    plain, ids = plain_size(dataset["fields"]), sum(static_ids(dataset["fields"]).values())
    numbers, with_ids = number_specs(specs), id_specs(specs)
    vocabularies = [spec["size"] for spec in with_ids]
    order, median = sequences["order"], sequences["median"]
    has_masks = any(spec.get("masked") for spec in numbers)
    has_order = bool(numbers) and not has_masks and order is not None and order > MIN_ORDER
    has_kernels = has_order and median >= MIN_KERNEL_TOKENS
    chosen: dict[str, Any] = {
        "dilations": choose_dilations(median, DILATIONS) if has_kernels else [],
        # In one direction, the bundle has a step, which reads token by token.
        "window": max(1, round(median / WINDOWS)) if has_kernels and settings["bidirectional"] else 1,
        "convolution": 0 if numbers else 3,
        **(OF_WORDS if max(vocabularies, default=0) > WORDS else _of_events(dataset["rows"]["train"])),
    }
    found = {name: chosen.get(name, value) if value == AUTO else value for name, value in settings.items()}
    if found["heads"] == AUTO:
        found["heads"] = ["recurrent"]
        if plain or ids:
            found["heads"] += ["kernels" if found["dilations"] and numbers else "linear"]
        if plain:
            found["heads"] += ["statistics"]
        if sum(crossed_sizes(dataset["fields"])[1]):
            found["heads"] += ["categories"]
        if any(not kind_of(spec).has_several for spec in with_ids):
            found["heads"] += ["ngrams"]
    if found["closed_form"] == AUTO:
        features = len(found["dilations"]) * OUTPUTS * found["biases"] + plain + ids
        rows = dataset["rows"]["train"]
        found["closed_form"] = min(rows, features) <= MAX_SIDE and rows * features <= MAX_CELLS
    return found, _explanation(found, numbers, vocabularies, order, median, has_masks)


def _of_events(rows: int) -> dict[str, float]:
    share = min(1.0, (DROPOUT_ROWS / max(1, rows)) ** 0.5)
    falling = ("feature_dropout", "dropout")
    return {name: round(value * share, 3) if name in falling else value for name, value in OF_EVENTS.items()}


def _tree_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of model=tree_lstm, with the values of the keys of both models."""
    for name in ("heads", "window", "dilations", "convolution", "projection_size"):
        if settings[name] != AUTO:
            raise InputError(f"model.{name}={settings[name]}", "is not used for trees", "remove it")
    shared = ("embedding_size", "hidden_size", "dropout", "token_dropout", "members")
    return {
        "_target_": "seqclf.models.tree_classifier.TreeClassifier",
        "encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"},
        **{name: settings[name] for name in shared if settings.get(name, AUTO) != AUTO},
    }


def _explanation(
    found: Mapping[str, Any], numbers: list[Any], vocabularies: list[int], order: float | None, median: int, masks: bool
) -> str:
    kinds = []
    if numbers:
        has_order = "with" if found["dilations"] else "without"
        what = "with missing values" if masks else f"{has_order} order (autocorrelation {order:.2f})"
        kinds.append(f"numbers {what}")
    if vocabularies:
        kinds.append(f"{max(vocabularies):,} {'words' if max(vocabularies) > WORDS else 'ids'}")
    names = [entry if isinstance(entry, str) else str(entry.get("_target_")) for entry in found["heads"]]
    tokens = "1 token" if found["window"] == 1 else f"{found['window']} tokens"
    windows = f"kernel windows of {tokens}, " if found["dilations"] and numbers else ""
    return f"{enumeration(kinds)}, median {median:,} tokens: {windows}heads {' + '.join(names)}"


@dataclass(frozen=True, kw_only=True)
class FrontConfig:
    """Settings of the front end. Those without a default follow from the data, here and below."""

    window: Count  # tokens over which the inputs of the recurrent head are averaged
    dilations: tuple[Count, ...]  # distances between the taps of the random kernels, in tokens; none: no kernels
    biases: Count = 2  # features of each kernel
    kernel_seed: Seed = 0
    cache: bool = True  # False: the outputs for training rows are computed anew for each batch


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Settings of `RecurrentHead`."""

    embedding_size: Count  # of the vector of an id, of categories and sets
    projection_size: Count
    hidden_size: Count  # units of each recurrent layer and direction
    cell: CellName = "lstm"
    layers: Count = 1
    residual_layers: ZeroOrMore = 0  # at the end of the stack (see `Recurrent`)
    bidirectional: bool = True
    convolution: ZeroOrMore  # windows that a residual convolution before the recurrent layers reads; 0: none
    dropout: DropoutShare  # of the pooled vector
    feature_dropout: DropoutShare  # of the features of each window
    token_dropout: DropoutShare = 0.1  # probability that training replaces an id by the unknown id
    number_noise: NonNegative = 0.2  # deviation of the noise of scaled numbers in training, if windows are tokens


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Settings of `HeadsClassifier`, with nothing left to resolve.

    `heads`: names of heads, or `{_target_: CLASS}` for a `Head` of one's own. `closed_form`: True to fit the kernels
    head by ridge regression, False to train it. `label_smoothing`: part of each head's loss that spreads evenly over
    the classes.

    >>> sizes = dict.fromkeys(["embedding_size", "projection_size", "hidden_size"], 8)
    >>> more = {"convolution": 0, "dropout": 0.4, "feature_dropout": 0.25, "closed_form": True, "heads": ["recurrent"]}
    >>> HeadsConfig.of({**sizes, **more, "window": 2, "dilations": [1]}).front
    FrontConfig(window=2, dilations=(1,), biases=2, kernel_seed=0, cache=True)
    """

    settings: ClassVar[type]  # class of the flat keys, whose constructor has their types and defaults
    resolve = staticmethod(resolve_settings)

    front: FrontConfig
    recurrent: RecurrentConfig
    heads: tuple[str | Annotated[dict[str, Any], TargetOf(Head, OF_HEAD)], ...]
    closed_form: bool
    label_smoothing: DropoutShare = 0.1
    members: Count = 1

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> HeadsConfig:
        """Return the config of flat, resolved `settings`. Raises InputError for a value that cannot be used."""
        values = vars(cls.settings(**settings))
        if unresolved := [name for name, value in values.items() if value == AUTO]:
            raise InputError(f"model.{unresolved[0]}=auto", "needs the data", "give a number or a list")
        if not values["bidirectional"] and values["window"] != 1:
            problem = "must be 1 where model.bidirectional=false"
            raise InputError(f"model.window={values['window']}", problem, "set one of the two")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        parts = {"front": _part(FrontConfig, values), "recurrent": _part(RecurrentConfig, values)}
        return _part(cls, {**values, **parts})


def _part(kind: type, values: Mapping[str, Any]) -> Any:
    return kind(**{entry.name: values[entry.name] for entry in fields(kind)})


def _flat_keys() -> list[Any]:
    """Return name, type and default of each key: a setting without a default may be "auto", and is by default."""
    keys = []
    for part in (FrontConfig, RecurrentConfig, HeadsConfig):
        hints = get_type_hints(part, include_extras=True)
        for entry in fields(part):
            kind, default = hints[entry.name], entry.default
            if default is MISSING:
                kind, default = kind | Literal["auto"], AUTO
            if entry.name not in ("front", "recurrent"):
                keys.append((entry.name, kind, field(default=default)))
    return keys


HeadsConfig.settings = make_dataclass("HeadsSettings", _flat_keys(), kw_only=True)
