"""Worst errors on the page: whole ids, original texts, and the end of what is cut."""

import re
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest

from seqclf.data.encoding.token_table import DescribedRow, TokenTable
from seqclf.documents.html import render_body
from seqclf.documents.svg import hue
from seqclf.report.mistakes import MAX_LINE, MAX_TEXT, mistakes_section
from seqclf.report.reported import Mistake


def page_of(**changes):
    row = DescribedRow("7", {}, TokenTable([0, 1], {"shop": ["fuel", "cafe"]}, 2))._replace(**changes)
    mistake = Mistake("yes", "no", 0.01, 2, row)
    return render_body(mistakes_section(SimpleNamespace(split="test", mistakes=[mistake], bundle=None)))


def paragraphs(page, css_class):
    return [unescape(text) for text in re.findall(rf'<p class="{css_class}".*?>(.*?)</p>', page, re.DOTALL)]


def test_ids_are_never_cut():
    id = "blk_-1608999687919862906" * 20
    assert f"<dd>{id}</dd>" in page_of(id=id)


def test_a_text_is_shown_as_it_is_in_the_file():
    text = "  Two\n\tlines,  CAPITALS & <b>marks</b>\u202e reversed\x00"
    (shown,) = paragraphs(page_of(texts={"text": text}), "original")
    assert shown == text.replace("\u202e", "�").replace("\x00", "�")


def test_a_long_text_shows_both_ends():
    text = "".join(f"{number} " for number in range(1000))
    (shown,) = paragraphs(page_of(texts={"text": text}), "original")
    assert len(shown) < MAX_TEXT + 40 and "characters…]" in shown
    assert shown.startswith("0 1 2 ") and shown.endswith("998 999 ")


def test_a_long_line_of_tokens_keeps_the_first_and_the_last_ones():
    names = [f"event number {number}" for number in range(40)]
    table = TokenTable([*range(20), *range(480, 500)], {"event": names}, 500)
    (line,) = paragraphs(page_of(table=table), "line")
    assert line.startswith("event number 0 | ") and line.endswith(" | event number 39") and len(line) < MAX_LINE + 40
    hidden = int(re.search(r"… ([\d,]+) more …", line)[1])
    assert line.count("event number") + hidden == 500


def test_tokens_of_many_fields_are_a_table_with_numbers_to_the_right():
    columns = {
        "at, since the first": ["0 s", "9 h 32 min"],
        "shop": ["fuel", "cafe"],
        "eur": ["", "-3.5"],
        "x": ["", "?"],
    }
    page = page_of(table=TokenTable([0, 41], columns, 42), contributions=[1.0, 0.0])
    headings = re.findall(r'<th class="(\w+)" scope="col">(.*?)</th>', page)
    assert headings == [
        ("number", "token"),
        ("number", "contribution"),
        ("number", "at, since the first"),
        ("text", "shop"),
        ("number", "eur"),
        ("text", "x"),
    ]
    assert re.findall(r'scope="row">(.*?)<', page) == ["1", "42"] and "2 of 42 tokens" in page
    assert "9 h 32 min" in page and "+1.00" in page and "+0.00" in page
    assert paragraphs(page, "line") == [], "four fields do not fit a line"


def shaded(page):
    """Side, share, title and text of each shaded token."""
    pattern = r'<span class="(supports|opposes)" style="--share: (\d+)%" title="(.*?)">(.*?)</span>'
    return [(side, int(share), value, unescape(text)) for side, share, value, text in re.findall(pattern, page)]


def test_tokens_are_shaded_by_their_share_of_the_largest_contribution():
    table = TokenTable([0, 1, 2], {"shop": ["fuel", "<b>", "cafe"]}, 3)
    page = page_of(table=table, contributions=[0.5, -2.0, 0.0])
    assert shaded(page) == [
        ("supports", 25, "+0.50", "fuel"),
        ("opposes", 100, "-2.00", "<b>"),
        ("opposes", 0, "+0.00", "cafe"),
    ]
    assert "supports\nit" in page and "errors are explained" not in page
    assert shaded(page_of(table=table)) == [] and "log-odds" not in page_of(table=table)


def test_an_explained_text_shows_its_tokens_below():
    table = TokenTable([0, 1], {"text": ["free", ""]}, 2)
    page = page_of(texts={"text": "Free "}, table=table, contributions=[1.0, 0.5])
    assert [text for *_, text in shaded(page)] == ["free", "␣"]
    assert paragraphs(page, "original") == ["Free "]


def test_the_page_of_a_run_names_the_file_of_all_rows_and_that_of_a_bundle_does_not():
    assert "predictions.parquet" in page_of()
    report = SimpleNamespace(split="test", mistakes=[], bundle="runs/a/bundle", metrics=SimpleNamespace(accuracy=1.0))
    assert "predictions.parquet" not in render_body(mistakes_section(report))
    report.metrics.accuracy = 0.9  # a report without rows says nothing of its errors
    assert mistakes_section(report) is None


def test_rows_of_several_fields_are_a_table_with_shaded_rows():
    table = TokenTable([0, 1, 9], {"shop": ["fuel", "cafe", "fuel"], "eur": ["1", "2", "3"]}, 10)
    page = page_of(table=table, form="table", contributions=[-0.5, 2.0, 0.0])
    rows = re.findall(r'<tr class="(\w+)" style="--share: (\d+)%"><th class="number" scope="row">(\d+)<', page)
    assert rows == [("opposes", "25", "1"), ("supports", "100", "2"), ("opposes", "0", "10")]
    assert "3 of 10 tokens" in page and "<tr class" not in page_of(table=table, form="table")


def cells_of(page):
    """Class, hue, title and text of each cell of the strip, then hue and text of each entry of the legend."""
    strip, *legend = re.findall(r'<p class="strip.*?>(.*?)</p>', page, re.DOTALL)
    cells = re.findall(r'<i class="(.*?)" style="--h:(\d+)(?:;--share:\d+%)?" title="(.*?)">(.*?)</i>', strip)
    return cells, re.findall(r'--h:(\d+)"></i> (.*?)</span>', legend[0]) if legend else []


def test_categories_are_a_strip_coloured_by_id_with_a_legend_of_the_frequent_values():
    texts = ["<fuel>", "cafe", "?", "<fuel>"]
    row = {"table": TokenTable([0, 1, 2, 3], {"shop": texts}, 4), "form": "strip", "tokens": np.array([9, 2, 0, 9])}
    cells, legend = cells_of(page_of(**row, contributions=[1.0, -0.5, 0.25, 0.0]))
    assert cells == [
        ("supports deep", str(hue(9)), "1: &lt;fuel&gt;, +1.00", ""),
        ("opposes", str(hue(2)), "2: cafe, -0.50", ""),
        ("supports new", str(hue(0)), "3: ?, +0.25", ""),
        ("opposes deep", str(hue(9)), "4: &lt;fuel&gt;, +0.00", ""),
    ]
    assert legend == [
        (str(hue(9)), "&lt;fuel&gt; \N{MULTIPLICATION SIGN} 2"),
        (str(hue(2)), "cafe"),
        (str(hue(0)), "?"),
    ]
    (first, *_), _ = cells_of(page_of(**row))
    assert first == (" deep", str(hue(9)), "1: &lt;fuel&gt;", "")


def test_short_values_stand_in_their_cells_and_a_long_strip_names_its_gap():
    table = TokenTable([0, 1, 500, 501], {"event": ["1", "12", "7", "1"]}, 502)
    page = page_of(table=table, form="strip", tokens=np.arange(1, 503))
    cells, legend = cells_of(page)
    assert [text for *_, text in cells] == ["1", "12", "7", "1"] and legend == []
    assert [title for _, _, title, _ in cells][2:] == ["501: 7", "502: 1"] and "… 498 more …" in page


def test_the_hues_of_eight_ids_differ():
    hues = np.sort([hue(id) for id in range(1, 9)])
    assert np.diff(hues, append=hues[0] + 360).min() > 20


@pytest.mark.parametrize("channels", [1, 6, 7])
def test_numbers_are_lines_or_a_heat_map_of_many_channels(channels):
    values = np.arange(40.0 * channels).reshape(40, channels)
    columns = {f"c{channel}": [] for channel in range(channels)}
    row = {"form": "chart", "values": values, "tokens": values.astype(np.float32)}
    page = page_of(**row, table=TokenTable(list(range(40)), columns, 40), contributions=[*[0.5] * 39, 0.0])
    assert page.count("<svg") == 1 and page.count(">token</text>") == 1
    assert all(f">{name}</text>" in page for name in columns)
    assert ("<image" in page) is (channels > 6) and ("A heat map" in page) is (channels > 6)
    assert (">0 to 273</text>" in page) is (channels > 6), "the range of a channel in the units of the data"
