"""The model card says what it is told, whatever markup stands in labels and names of columns."""

import copy
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.reporting.model_card import model_card

FIELD = {"kind": "category", "columns": ["x"], "values": "string", "width": None, "separator": None, "options": {}}
SCHEMA = {"id": None, "max_length": 9, "truncate": "error", "group_by": [], "order_by": [], "ignored": []}


def card(classes=("a", "b", "c"), label="label", written=None):
    content = {
        "classes": list(classes),
        "positive": None,
        "decision": Decision().to_dict(),
        "schema": {**SCHEMA, "fields": [{"name": "x", **FIELD}], "label": label},
        "model": {"members": 1, "cell": "lstm"},
        "data": {"digest": "abc", "rows": {"train": 3}},
        "metrics": {} if written is None else written,
        "versions": {"seqclf": "1"},
    }
    return model_card(content, written or {})


@pytest.mark.parametrize(
    "label",
    [
        "<img src=x onerror=alert(1)>",
        "[a](http://evil)",
        "`code`",
        "**bold**",
        "a|b",
        "two\nlines",
        "_a_",
        "https://evil",
    ],
)
def test_markup_in_a_label_is_text(label):
    markdown_it = pytest.importorskip("markdown_it")
    page = markdown_it.MarkdownIt("commonmark").enable("table").render(card([label, "b", "c"]))
    for tag in ("<img", "<a ", "<strong>", "<em>", "<p><code>"):
        assert tag not in page
    assert " ".join(label.split()) in __import__("html").unescape(page)


@pytest.mark.parametrize(
    "name", ["fraud", "is fraud", "a'b", "$(touch x)", "; rm -r", '"x"', "a=b", "[1]", "-x", "null"]
)
def test_the_commands_can_be_pasted_into_a_shell(name):
    line = next(line for line in card(label=name).splitlines() if "seqclf.evaluate" in line)
    words = shlex.split(line)
    (word,) = [word for word in words if word.startswith("data.label=")]
    assert len(words) == 8
    assert OverridesParser.create().parse_override(word).value() == name


def test_a_name_that_cannot_be_pasted_is_left_to_the_reader():
    assert "data.label=COLUMN " in card(label="a\n```\n# b") and "data.label=COLUMN " in card(label="${oc.env:HOME}")


@pytest.mark.parametrize("written", [{"test": {"by_length": 5}}, {"test": {"by_length": [], "alarms": 1}}])
def test_scores_of_another_version_are_refused_by_name(written):
    with pytest.raises(InputError, match=r"metrics\.json of the run: is not as this version writes it"):
        card(written=copy.deepcopy(written))
