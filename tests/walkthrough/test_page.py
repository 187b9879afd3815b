"""The walkthrough page and its short form in the terminal: a section for every stage, and values in cells."""

import re

import pytest
from support.browser import REPORT_WIDTH, content_widths, needs_chromium, with_script

from seqclf.documents.html import render_document
from seqclf.documents.terminal import MAX_HEAT_MAPS, PADDING, console, show_document
from seqclf.walkthrough.document import walkthrough_document

ROWS = [[1, 2, 3], [99], [4, 5, 6, 0]]


@pytest.fixture
def case(inspected):
    return inspected("words", "model=lstm", values=ROWS)


@pytest.fixture
def printed(monkeypatch):
    def lines(case, width=100):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            show_document(walkthrough_document(case.walkthrough))
        return captured.get().splitlines()

    return lines


def page_of(case):
    return render_document(walkthrough_document(case.walkthrough))


def test_every_stage_has_a_section_with_its_shape_and_explanation(case, printed):
    text = page_of(case)
    headings = [re.sub("<.*?>", "", heading) for heading in re.findall(r"<h2.*?</h2>", text, re.DOTALL)]
    stages = case.result.stages
    for number, (heading, stage) in enumerate(zip(headings, stages, strict=True), start=1):
        assert heading.strip().startswith(f"{number}. {stage.title}")
        assert stage.values is None or f"<b>{stage.shape_text}</b>" in text
        assert stage.text[:40] in text
    lines = printed(case)
    shown = [line for line in lines if re.match(r"\d+\. ", line)]
    assert shown == [f"{i}. {stage.title}  {stage.shape_text}".rstrip() for i, stage in enumerate(stages, start=1)]
    assert lines[-1] == "left out: row 9: is empty"


def test_the_page_needs_nothing_else(case):
    text = page_of(case)
    assert "default-src 'none'" in text and not re.search(r"\bsrc=|url\((?!#)|@import|<script", text)


def test_padding_unknown_tokens_and_active_batch_sizes_are_shown(case, printed):
    lines = printed(case)
    assert [line.count(PADDING) for line in lines if re.match(r"\d: \d tokens?", line)] == [1, 3, 0]
    assert next(line for line in lines if "active batch size" in line).split()[-4:] == ["3", "2", "2", "1"]
    assert any(line.split() == ["x", "int64", "(3,", "4)"] for line in lines)
    assert "1 value is unknown, with a question mark." in lines and "0 ?" in page_of(case)


def test_numbers_stand_in_the_cells_of_tokens(case):
    stage = case.stage("Embedded tokens")
    number = case.titles.index(stage.title) + 1
    section = page_of(case).split(f'<section id="{number}-embedded-tokens"')[1].split("</section>")[0]
    cells = re.findall(r'<td class="(?:up|down)[^>]*>([^<]*)</td>', section)
    lengths = case.result.lengths
    expected = [v for row, n in enumerate(lengths) for channel in range(6) for v in stage.values[row, :n, channel]]
    assert [float(cell) for cell in cells] == pytest.approx(expected, abs=0.0051)
    assert "nan" not in section.lower()


def test_the_predicted_class_is_marked_and_compared_with_the_label(inspected, printed):
    case = inspected("words", "model=lstm")
    marked = [
        cells[index].mark
        for (_, cells), index in zip(case.stage("Logits").blocks[1].maps[0].rows, case.result.predicted, strict=True)
    ]
    assert marked == [True] * 4
    right = sum(label == f"k{index}" for label, index in zip(case.rows.labels, case.result.predicted, strict=True))
    text = "\n".join(printed(case, 160))
    assert text.count(": right") == right and text.count(": wrong") == 4 - right


def test_what_is_left_out_is_said(inspected, printed):
    case = inspected("words", "model=lstm", values=[[1, 2, 3] * 300, *[[1] * 150] * 49])
    text = page_of(case)
    assert len(text) < 3_000_000
    assert "the first 200 of 900 tokens" in text and "the first 80 of 900 columns" in text
    assert "a stage shows about 4,000 cells" in text
    lines = printed(case)
    assert f"… {50 - MAX_HEAT_MAPS} more rows" in lines and any("more columns" in line for line in lines)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_only_frames_scroll_sideways(inspected, tmp_path, width):
    names = []
    for name, values in {"short": ROWS, "long": [[1, 2, 3] * 100] * 5}.items():
        text = page_of(inspected("words", "model=lstm", values=values))
        (tmp_path / f"{name}.html").write_text(with_script(text, REPORT_WIDTH), encoding="utf-8")
        names.append(f"{name}.html")
    assert content_widths(tmp_path, names, width) == [width, width]
