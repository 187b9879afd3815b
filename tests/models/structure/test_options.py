"""Schedules of structure changes: what is refused, in one line that names the entry."""

import re

import pytest

from seqclf.config.documentation import CONF
from seqclf.errors import InputError
from seqclf.models.structure.options import CHANGEABLE, KEYS, ModelChange, changed_config, read_schedule

from .conftest import COMMON, ENCODERS

LSTM = {**COMMON, "encoder": {"_target_": ENCODERS["recurrent"]}, "cell": "lstm", "hidden_size": 8, "layers": 1}
TRANSFORMER = {**COMMON, "encoder": {"_target_": ENCODERS["transformer"]}, "hidden_size": 96, "heads": 4, "layers": 2}


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ({"epoch": 4, "freeze": "norm"}, "structure: must be a list of changes with an epoch each, such as [{epoch: 3"),
        (["layers"], "structure: must be a list of changes with an epoch each"),
        ([{"layers": 4}], "structure: must be a list of changes with an epoch each"),
        ([{"epoch": 0, "layers": 2}], "structure[0].epoch=0: must be at least 1"),
        ([{"epoch": 2, "freeze": "norm"}, {"epoch": 3, "layer": 2}], "structure[1].layer: no such key; did you mean "),
        ([{"epoch": 3}], f"structure[0]: changes nothing; add {KEYS}"),
    ],
)
def test_entries_that_are_no_changes_are_refused(entries, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        read_schedule(entries)


def test_the_help_lists_every_key_of_a_change():
    comment = (CONF / "train.yaml").read_text().partition("\nstructure: ")[2].partition("\nexport:")[0]
    words = " ".join(comment.replace("#", " ").split())
    assert words.partition("a key of model: ")[2].replace(" or ", ", ").split(", ") == CHANGEABLE
    assert "freeze or unfreeze" in words and KEYS.endswith(", ".join(CHANGEABLE))


@pytest.mark.parametrize(
    ("model", "changes", "line"),
    [
        (LSTM, {"layers": 1}, "structure[0].layers=1: is the value already; remove it"),
        (LSTM, {"hidden_size": 7}, "structure[0].hidden_size=7: must be above 8, its value; a model grows only"),
        (
            TRANSFORMER,
            {"hidden_size": 192},
            "structure[0].hidden_size=192: cannot change in seqclf.models.transformer.Transformer; of model, it can "
            "change layers, dropout,",
        ),
        (
            {"_target_": "acme.Net", "layers": 1},
            {"layers": 2},
            "structure[0].layers=2: cannot change in acme.Net; freeze and unfreeze work for any model",
        ),
    ],
)
def test_values_that_a_model_cannot_take_are_refused(model, changes, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        changed_config(model, ModelChange(**changes).of_model(), "structure[0]")


def test_layers_are_added_and_removed_as_residual_ones_and_arguments_stay_in_their_block():
    model = {
        **LSTM,
        "layers": 2,
        "residual_layers": 0,
        "encoder": {"_target_": ENCODERS["recurrent"], "hidden_size": 8},
    }
    deeper = changed_config(model, {"layers": 4, "hidden_size": 9}, "")
    assert (deeper["layers"], deeper["residual_layers"], deeper["encoder"]["hidden_size"]) == (4, 2, 9)
    counts = [changed_config(deeper, {"layers": layers}, "")["residual_layers"] for layers in (3, 2, 1, 5)]
    assert counts == [1, 0, 0, 3] and model["encoder"]["hidden_size"] == 8
