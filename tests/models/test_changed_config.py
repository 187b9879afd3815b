"""Schedules of structure changes: what is rejected, in one line that names the entry."""

import re

import pytest

from seqclf.config.command_keys import descriptions
from seqclf.errors import InputError
from seqclf.models.change_network import CLASSIFIER, HEADS, RECURRENT, changed_config
from seqclf.settings.train_settings import CHANGEABLE, CHANGES, TrainConfig, read_schedule

LSTM = {"_target_": CLASSIFIER, "encoder": {"_target_": RECURRENT}, "hidden_size": 8, "layers": 1, "dropout": 0.1}
TRANSFORMER = {**LSTM, "encoder": {"_target_": "seqclf.models.transformer.Transformer"}}
ADAPTIVE = {**LSTM, "_target_": "seqclf.models.adaptive.AdaptiveClassifier"}


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ({"epoch": 4, "freeze": "norm"}, "structure: must be a list of changes with an epoch each, such as [{epoch: 3"),
        ([{"layers": 4}], "structure: must be a list of changes with an epoch each"),
        ([{"epoch": 0, "layers": 2}], "structure[0].epoch=0: must be at least 1"),
        ([{"epoch": 2, "freeze": "norm"}, {"epoch": 3, "layer": 2}], "structure[1].layer: no such key; write freeze, "),
        ([{"epoch": 3, "embedding_size": 9}], f"structure[0].embedding_size: no such key; write {CHANGES}"),
        ([{"epoch": 3}], f"structure[0]: changes nothing; add {CHANGES}"),
    ],
)
def test_entries_that_are_no_changes_are_rejected(entries, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        read_schedule(entries)


def test_the_help_lists_every_key_of_a_change():
    keys = " ".join(descriptions(TrainConfig)["structure"].split()).partition("a key of model: ")[2].partition(" (")[0]
    assert tuple(keys.replace(" or ", ", ").split(", ")) == CHANGEABLE


@pytest.mark.parametrize(
    ("model", "changes", "line"),
    [
        (LSTM, {"layers": 1}, "structure[0].layers=1: is the value already"),
        (LSTM, {"hidden_size": 7}, "structure[0].hidden_size=7: must be above 8"),
        (TRANSFORMER, {"layers": 2}, "structure[0].layers=2: cannot change in seqclf.models.transformer.Transformer; "),
        (ADAPTIVE, {"dropout": 0.2}, "structure[0].dropout=0.2: cannot change in seqclf.models.adaptive."),
        ({"_target_": HEADS, "heads": ["kernels"]}, {"layers": 2}, "structure[0].layers=2: cannot change in seqclf."),
        ({"_target_": "acme.Net", "layers": 1}, {"layers": 2}, "structure[0].layers=2: cannot change in acme.Net; "),
    ],
)
def test_values_that_a_model_cannot_take_are_rejected(model, changes, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        changed_config(model, changes, "structure[0]")


def test_layers_are_added_and_removed_as_residual_ones_and_arguments_stay_in_their_block():
    model = {**LSTM, "layers": 2, "residual_layers": 0, "encoder": {"_target_": RECURRENT, "hidden_size": 8}}
    deeper = changed_config(model, {"layers": 4, "hidden_size": 9}, "")
    assert (deeper["layers"], deeper["residual_layers"], deeper["encoder"]["hidden_size"]) == (4, 2, 9)
    counts = [changed_config(deeper, {"layers": layers}, "")["residual_layers"] for layers in (3, 2, 1, 5)]
    assert counts == [1, 0, 0, 3] and model["encoder"]["hidden_size"] == 8
