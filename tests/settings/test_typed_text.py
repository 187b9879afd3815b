"""Arguments in advice are read back by Hydra and by the shells as the text that was meant."""

import shutil
import subprocess

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from seqclf.settings.typed_text import argument, label_text, quoted

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1) | st.from_regex(
    r"[\w\\'\"${} ,.]+", fullmatch=True
)
AWKWARD = ["it's", 'say "hi"', "a, b", "{x}", "007", "null", "~/x", "Größe", "$HOME", "!1", "`ls`"]


def read_back(word):
    override = OverridesParser.create().parse_override(word)
    config = OmegaConf.create({"key": override.value()})
    return label_text(config.key)


@given(TEXTS)
def test_a_quoted_text_is_read_back_by_hydra(text):
    assert read_back(f"key={quoted(text)}") == text


@pytest.mark.parametrize("shell", [name for name in ("bash", "zsh") if shutil.which(name)])
def test_an_argument_is_one_word_of_a_shell_that_hydra_reads_back(shell):
    line = " ".join(argument("key", text) for text in AWKWARD)
    done = subprocess.run([shell, "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    assert [read_back(word) for word in done.stdout.split("\0")[:-1]] == AWKWARD
