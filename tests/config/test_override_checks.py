"""Remedies for arguments that Hydra cannot read can be typed as they stand."""

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.config.override_checks import TypedArguments
from seqclf.errors import InputError


@pytest.mark.parametrize(
    ("value", "mapping"),
    [
        ("{'with, comma': 0.8}", {"with, comma": 0.8}),
        ('{"a: b": 0.8, plain: 0.5}', {"a: b": 0.8, "plain": 0.5}),
        ("{plain: 0.5, '(x) = [y]': 0.8}", {"plain": 0.5, "(x) = [y]": 0.8}),
    ],
)
def test_a_quoted_key_is_answered_with_a_form_that_hydra_reads(value, mapping):
    """Hydra reads no quotes around a key, only backslashes before its punctuation."""
    with pytest.raises(InputError, match="keys in braces cannot be quoted; write ") as raised:
        TypedArguments("train", [f"decision.min_recall={value}"]).check()
    (remedy,) = shlex.split(str(raised.value).partition("; write ")[2])
    TypedArguments("train", [remedy]).check()
    assert OverridesParser.create().parse_override(remedy).value() == mapping


@pytest.mark.parametrize("key", ["model.encoder._target_", "+model.encoder._target_", "model._target_"])
def test_arguments_of_a_class_of_another_package_are_to_be_added(key):
    """`kernel` is a key of another model, which must not take the place of the class."""
    typed = TypedArguments("train", [f"{key}=acme.Gated", "model.kernel=7"])
    error = typed.unknown_key("model.kernel")
    assert str(error) == "model.kernel: no such key; to add a new key, write +model.kernel=7"
    own = TypedArguments("train", [f"{key}=seqclf.models.recurrent.Recurrent", "model.kernel=7"])
    assert "model=conv_lstm" in own.unknown_key("model.kernel").remedy


def test_a_value_with_punctuation_is_still_to_be_quoted():
    with pytest.raises(InputError, match="quote the parts that hold punctuation"):
        TypedArguments("train", ["data.fields={a: (b}"]).check()


def test_options_may_stand_between_overrides():
    typed = TypedArguments("train", ["seed=1", "--config-dir", "folder", "debug=nan", "-m", "model=gru,lstm"])
    typed.check()
    assert typed.for_hydra() == ["--config-dir", "folder", "-m", "seed=1", "debug='nan'", "model=gru,lstm"]
