"""The walkthrough page and its short form in the terminal: a section for every stage, and values in cells."""

import re

import pytest
from markupsafe import escape

from seqclf.documents.html import render_document
from seqclf.documents.terminal import console, show_document

ROWS = [{"x": [1, 2, 3]}, {"x": [99]}, {"x": [4, 5, 6, 0]}]


@pytest.fixture
def case(inspected):
    return inspected("words", "model=lstm", values=ROWS)


@pytest.fixture
def printed(monkeypatch):
    def lines(case, width=100):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            show_document(case.document)
        return captured.get().splitlines()

    return lines


def page_of(case):
    return render_document(case.document)


def test_every_stage_has_a_section_with_its_shape_and_explanation(case, printed):
    text = page_of(case)
    headings = [re.sub("<.*?>", "", heading) for heading in re.findall(r"<h2.*?</h2>", text, re.DOTALL)]
    stages = case.stages
    for number, (heading, stage) in enumerate(zip(headings, stages, strict=True), start=1):
        assert heading.strip().startswith(f"{number}. {stage.title}")
        assert stage.values is None or f"<b>{stage.shape}</b>" in text
        assert escape(stage.text) in text
    lines = printed(case)
    shown = [line for line in lines if re.match(r"\d+\. ", line)]
    assert shown == [f"{i}. {stage.title}  {stage.shape}".rstrip() for i, stage in enumerate(stages, start=1)]
    assert lines[-1] == "left out: row 9: is empty"


def test_the_page_needs_nothing_else(case):
    text = page_of(case)
    assert "default-src 'none'" in text and not re.search(r"\bsrc=|url\((?!#)|@import|<script", text)


def test_padding_unknown_tokens_and_active_batch_sizes_are_shown(case, printed):
    lines = printed(case)
    assert any(line.endswith("Active batch size by position: 3, 2, 2, 1") for line in lines)
    assert any(line.split() == ["x", "int64", "(3,", "4)"] for line in lines)
    assert "1 value is unknown, with a question mark." in lines and "0 ?" in page_of(case)
