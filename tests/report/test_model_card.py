"""The model card shows labels and column names as text, and its commands can be pasted into a shell."""

import html
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.report.description import card_text
from seqclf.report.reported import Reported

FIELD = {
    "kind": "category",
    "columns": ["x"],
    "values": "text",
    "width": None,
    "separator": None,
    "options": {},
    "static": False,
}
SCHEMA = {"label_type": "text", "id": None, "max_length": 9, "truncate": "error", "ignored": []}
SCHEMA |= {"group_by": [], "order_by": [], "order_format": None}


def card(classes=("a", "b", "c"), label="label", model=None):
    manifest = {
        "classes": list(classes),
        "positive": None,
        "decision": Decision().to_dict(),
        "schema": {**SCHEMA, "fields": [{"name": "x", **FIELD}], "label": label},
        "model": {"members": 1, "cell": "lstm"} if model is None else model,
        "data": {"digest": "abc", "rows": {"train": 3}},
        "metrics": {},
        "versions": {"seqclf": "1"},
    }
    return card_text(Reported(result=RunResult.from_dict({}), manifest=manifest))


@pytest.mark.parametrize(
    "label", ["<img src=x onerror=alert(1)>", "[a](http://evil)", "`code`", "**bold**", "a|b", "two\nlines"]
)
def test_markup_in_a_label_is_shown_as_text(label):
    markdown_it = pytest.importorskip("markdown_it")
    page = markdown_it.MarkdownIt("commonmark").enable("table").render(card([label, "b", "c"]))
    for tag in ("<img", "<a ", "<strong>", "<em>", "<p><code>"):
        assert tag not in page
    assert " ".join(label.split()) in html.unescape(page)


@pytest.mark.parametrize(
    "name", ["fraud", "is fraud", "a'b", "$(touch x)", "; rm -r", '"x"', "a=b", "[1]", "-x", "null"]
)
def test_the_commands_can_be_pasted_into_a_shell(name):
    line = next(line for line in card(label=name).splitlines() if line.startswith("seqclf evaluate"))
    arguments = shlex.split(line)
    (override,) = [argument for argument in arguments if argument.startswith("data.label=")]
    assert len(arguments) == 6
    assert OverridesParser.create().parse_override(override).value() == name


def test_a_name_that_cannot_be_quoted_is_replaced_by_a_placeholder():
    assert "data.label=COLUMN\n" in card(label="a\n```\n# b") and "data.label=COLUMN\n" in card(label="${oc.env:HOME}")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"cell": "gru", "bidirectional": True}, "with a bidirectional GRU."),
        ({"cell": "gru", "window": 4, "heads": ["recurrent", "linear"]}, "with a GRU on windows of 4 tokens + linear."),
        ({"encoder": {"_target_": "seqclf.models.transformer.Transformer"}}, "with a transformer."),
        ({"encoder": {"_target_": "mypackage.FieldEncoder"}}, "with a network."),
        ({"_target_": "mypackage.Net"}, "with a network."),
    ],
)
def test_the_card_names_the_network(model, name):
    assert name in card(model={"members": 1, **model})
