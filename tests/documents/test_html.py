"""Tables, sections and pages as markup."""

import base64
import hashlib
import re
import subprocess
import sys

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from seqclf.documents.html import (
    LONG_TABLE,
    Bar,
    Section,
    Table,
    bar,
    environment,
    render_page,
    render_section,
    render_sections,
)

EVIL = "<script>alert(1)</script>"


def markup(source, **context):
    """Render a template that uses the macros."""
    imports = "{% from 'macros.html' import alerts, folded, section, show_picture, show_table %}"
    return environment().from_string(imports + source).render(**context)


def table_markup(*arguments, **options):
    return markup("{{ show_table(table) }}", table=Table(*arguments, **options))


def test_bars_stay_inside_their_cell():
    assert (Bar(-1.0, 0.5).left, Bar(-1.0, 0.5).width) == ("0.0%", "50.0%")
    assert (Bar(0.5, 7.0).left, Bar(0.5, 7.0).width) == ("50.0%", "50.0%")
    assert Bar(0.5, 0.25).width == "0.0%" and Bar(0.0, 1.0, mark=2.0).tick == "100.0%"


def test_short_rows_end_with_one_wide_cell():
    content = table_markup(dict.fromkeys("abc", "number"), [[1, 2, 3], ["more"]])
    assert content.count("<td") == 3 and content.count('scope="row"') == 2 and 'colspan="2"' in content


def test_strong_rows_stacked_cells_and_bars_are_marked():
    columns = {"name": "text", "": "bar", "note": "text"}
    content = table_markup(columns, [["a", bar(0.25), "c"], ["b", bar(1.0), "d"]], strong=1, stacked=True)
    assert 'class="full stacked"' in content and content.count('<tr class="strong">') == 1
    assert '<th class="text" scope="row" data-name="name">a</th>' in content
    assert '<td class="text" data-name="note">c</td>' in content and "width:25.0%" in content


def test_numbers_are_never_stacked_as_they_are_compared_by_column():
    assert Table({"name": "text", "a": "number", "b": "number"}, [], stacked=True).css_class == ""


def test_the_heading_cells_of_rows_and_columns_are_marked_and_the_caption_names_the_table():
    content = table_markup({"name": "text", " ": "bar", "b": "number"}, [["x", bar(0.5), 1]], caption="Scores & more")
    assert content.count('scope="col"') == 2, "a column without a heading has no heading cell"
    assert content.count('scope="row"') == 1
    assert (
        "<caption><span>Scores &amp; more</span></caption>" in content and 'aria-label="Scores &amp; more"' in content
    )


@pytest.mark.parametrize("rows", [LONG_TABLE, LONG_TABLE + 1])
def test_only_long_tables_are_folded(rows):
    content = table_markup({"name": "text"}, [["a"]] * rows, folded="All")
    assert ("<summary>All</summary>" in content) == (rows > LONG_TABLE)
    assert "<details>" not in table_markup({"name": "text"}, [["a"]] * rows)


def test_everything_but_markup_is_escaped():
    content = markup(
        "{% call section(heading) %}{{ text }}{{ paragraph }}{% endcall %}",
        heading="<b>heading",
        text="<i>text",
        paragraph=Markup("<p>paragraph</p>"),
    )
    assert "&lt;b&gt;heading" in content and "&lt;i&gt;text" in content and "<p>paragraph</p>" in content


def test_headings_cells_alerts_and_titles_are_escaped():
    table = Table({EVIL: "text"}, [[EVIL]] * (LONG_TABLE + 1), stacked=True, folded=EVIL)
    content = markup("{{ show_table(table) }}{{ alerts([evil]) }}", table=table, evil=EVIL)
    assert "<script" not in content and content.count("&lt;script&gt;") == 4 + 2 * len(table.rows)
    assert "<script" not in render_page("run.html", title=EVIL, summary=EVIL, sections=[])


def test_a_page_allows_its_own_script_alone():
    script = "document.title = 1 < 2 ? 'yes' : 'no';"
    content = render_page("run.html", title="title", summary="summary", script=script, sections=[])
    (embedded,) = re.findall(r"<script>(.*?)</script>", content, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(embedded.encode()).digest()).decode()
    assert embedded == script and f"script-src 'sha256-{digest}'" in content
    assert "script" not in render_page("run.html", title="title", summary="summary", sections=[])


def test_a_section_sees_its_own_variables_alone():
    splits = Table({"split": "text"}, [["test"]])
    first = render_section(Section("run/data.html", {"warnings": ["a < b"], "splits": splits, "holdout_rows": 0}))
    with pytest.raises(UndefinedError, match="'splits' is undefined"):
        render_section(Section("run/data.html"))
    content = render_sections("run.html", [first], title="title", summary="summary")
    assert content.count("<section ") == 1 and "<li>a &lt; b</li>" in content
    assert "<nav" not in content, "one section needs no contents list"


def test_the_contents_list_links_every_section():
    contexts = [{"heading": heading, "text": None, "table": None} for heading in ("Costs", "<i>b</i>", "Costs", "?")]
    contexts[0]["text"] = Markup('<input class="x" id="b">')
    contexts.append({"heading": "B", "text": None, "table": None})
    rendered = [render_section(Section("run/table.html", context)) for context in contexts]
    content = render_sections("run.html", rendered, title="title", summary="summary")
    ids = re.findall(r'<section id="([^"]*)">', content)
    assert ids == ["costs", "i-b-i", "costs-2", "section", "b-2"], (
        "the script of a page knows its elements by their ids"
    )
    broad, narrow = re.findall(r"<nav.*?</nav>", content, re.DOTALL)
    for contents in (broad, narrow):
        assert re.findall(r'href="#([^"]*)"', contents) == ids and ">&lt;i&gt;b&lt;/i&gt;</a>" in contents
    assert "<details>" in narrow and "<details>" not in broad


def test_the_template_engine_loads_with_the_first_page_only():
    modules = ("seqclf.report.page", "seqclf.survey.document", "seqclf.bench.page")
    script = f"import sys, {', '.join(modules)}; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
