"""Tables and bars as markup."""

import base64
import hashlib
import re

from markupsafe import Markup

from seqclf.reporting.html import Bar, bar, page, section, table


def test_bars_stay_inside_their_cell():
    assert (Bar(-1.0, 0.5).left, Bar(-1.0, 0.5).width) == ("0.0%", "50.0%")
    assert (Bar(0.5, 7.0).left, Bar(0.5, 7.0).width) == ("50.0%", "50.0%")
    assert Bar(0.5, 0.25).width == "0.0%" and Bar(0.0, 1.0, mark=2.0).tick == "100.0%"


def test_short_rows_end_with_one_wide_cell():
    markup = table(dict.fromkeys("abc", "number"), [[1, 2, 3], ["more"]])
    assert markup.count("<td") == 5 and 'colspan="2"' in markup


def test_strong_rows_stacked_cells_and_bars_are_marked():
    markup = table({"name": "text", "": "bar"}, [["a", bar(0.25)], ["b", bar(1.0)]], strong=1, stacked=True)
    assert 'class="full stacked"' in markup and markup.count('<tr class="strong">') == 1
    assert '<td class="text" data-name="name">a</td>' in markup and "width:25.0%" in markup


def test_everything_but_markup_is_escaped():
    markup = section("<b>heading", "<i>text", Markup("<p>paragraph</p>"))
    assert "&lt;b&gt;heading" in markup and "&lt;i&gt;text" in markup and "<p>paragraph</p>" in markup


def test_a_page_allows_its_own_script_alone():
    script = "document.title = 1 < 2 ? 'yes' : 'no';"
    content = page("title", "summary", [], script)
    (embedded,) = re.findall(r"<script>(.*?)</script>", content, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(embedded.encode()).digest()).decode()
    assert embedded == script and f"script-src 'sha256-{digest}'" in content
    assert "script" not in page("title", "summary", [])
