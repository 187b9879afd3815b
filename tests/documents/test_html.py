"""Tables, sections and pages as markup."""

import base64
import hashlib
import re
import subprocess
import sys

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from seqclf.documents import html
from seqclf.documents.blocks import LONG_TABLE, Alerts, Document, Section, Table, Template, Text
from seqclf.documents.html import environment, read_template, render_body, render_document, render_page

EMPTY = {"title": "title", "document": Document("title", "summary", []), "sections": [], "alerts": []}
EVIL = "<script>alert(1)</script>"


def markup(source, **context):
    """Render a template that uses the macros."""
    imports = "{% from 'macros.html' import alerts, folded, show_table %}"
    return environment().from_string(imports + source).render(**context)


def table_markup(*arguments, **options):
    return markup("{{ show_table(table) }}", table=Table(*arguments, **options))


def test_bars_stay_inside_their_cell():
    markup = table_markup({"name": "text", "": "bar"}, [["a", 2.0], ["b", -1.0]])
    assert re.findall(r'<i style="(.*?)">', markup) == ["width:100.0%", "width:0.0%"]


def test_short_rows_end_with_one_wide_cell():
    content = table_markup(dict.fromkeys("abc", "number"), [[1, 2, 3], ["more"]])
    assert content.count("<td") == 3 and content.count('scope="row"') == 2 and 'colspan="2"' in content


def test_strong_rows_and_bars_are_marked():
    columns = {"name": "text", "": "bar", "note": "text"}
    content = table_markup(columns, [["a", 0.25, "c"], ["b", 1.0, "d"]], strong=1)
    assert 'class="full"' in content and content.count('<tr class="strong">') == 1
    assert '<th class="text" scope="row">a</th>' in content
    assert '<td class="text">c</td>' in content and "width:25.0%" in content


def test_the_heading_cells_of_rows_and_columns_are_marked_and_the_caption_names_the_table():
    content = table_markup({"name": "text", " ": "bar", "b": "number"}, [["x", 0.5, 1]], caption="Scores & more")
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
        "{% call folded(heading) %}{{ text }}{{ paragraph }}{% endcall %}",
        heading="<b>heading",
        text="<i>text",
        paragraph=Markup("<p>paragraph</p>"),
    )
    assert "&lt;b&gt;heading" in content and "&lt;i&gt;text" in content and "<p>paragraph</p>" in content


def test_headings_cells_alerts_and_titles_are_escaped():
    table = Table({EVIL: "text"}, [[EVIL]] * (LONG_TABLE + 1), folded=EVIL)
    content = markup("{{ show_table(table) }}{{ alerts([evil]) }}", table=table, evil=EVIL)
    assert "<script" not in content and content.count("&lt;script&gt;") == 4 + len(table.rows)
    document = Document(
        EVIL, EVIL, [Section(EVIL, [Text(EVIL, soft=True)])], EVIL, {EVIL: EVIL}, {EVIL: [EVIL]}, [EVIL]
    )
    assert "<script" not in render_document(document)


def test_a_page_allows_its_own_script_alone():
    script = "document.title = 1 < 2 ? 'yes' : 'no';"
    content = render_page("document.html", script=script, **EMPTY)
    (embedded,) = re.findall(r"<script>(.*?)</script>", content, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(embedded.encode()).digest()).decode()
    assert embedded == script and f"script-src 'sha256-{digest}'" in content
    assert "script" not in render_page("document.html", **EMPTY)


@pytest.fixture
def template(monkeypatch, tmp_path):
    """`template(source)`: the name of a template with this source."""
    sources = {}
    monkeypatch.setattr(html, "read_template", lambda name: sources.get(name) or read_template(name))
    html.environment.cache_clear()

    def write(source):
        name = f"{len(sources)}.html"
        sources[name] = source
        return name

    yield write
    html.environment.cache_clear()


def test_a_template_sees_its_own_variables_alone(template):
    name = template("<b>{{ owner }}</b>")
    section = Section("Data", [Text("a < b"), Alerts(["c < d"]), Template(name, {"owner": "<i>"})])
    content = render_document(Document("title", "summary", [section]))
    assert section.printed == section.content[:2], "the terminal and Markdown show no templates"
    assert content.count("<section ") == 1 and "<li>c &lt; d</li>" in content and "<b>&lt;i&gt;</b>" in content
    assert "<nav" not in content, "one section needs no contents list"
    with pytest.raises(UndefinedError, match="'owner' is undefined"):
        render_body(Section("Data", [Template(name)]))


def test_the_contents_list_links_every_section(template):
    own = Template(template('<input class="x" id="b">'))
    sections = [Section("Costs", [own]), *(Section(heading) for heading in ("<i>b</i>", "Costs", "?", "B"))]
    content = render_document(Document("title", "summary", sections))
    ids = re.findall(r'<section id="([^"]*)">', content)
    assert ids == ["costs", "i-b-i", "costs-2", "section", "b-2"], (
        "the script of a page knows its elements by their ids"
    )
    broad, narrow = re.findall(r"<nav.*?</nav>", content, re.DOTALL)
    for contents in (broad, narrow):
        assert re.findall(r'href="#([^"]*)"', contents) == ids and ">&lt;i&gt;b&lt;/i&gt;</a>" in contents
    assert "<details>" in narrow and "<details>" not in broad


def test_the_template_engine_loads_with_the_first_page_only():
    modules = ("seqclf.report.description", "seqclf.survey.sections")
    script = f"import sys, {', '.join(modules)}; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
