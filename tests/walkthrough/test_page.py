"""The walkthrough page: a section for every stage, values in cells, padding hatched, and rules for what is too much."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from support.browser import REPORT_WIDTH, content_widths, needs_chromium, with_script

from seqclf.documents.html import render_document
from seqclf.walkthrough.document import ADAPTIVE, TREE_LSTM, walkthrough_document


class Page(HTMLParser):
    """Headings, links, ids and the cells of the tables of a page, by section."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.headings, self.links, self.ids = [], [], set()
        self.cells = {}
        self.open, self.section = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.links += [attributes["href"]] if "href" in attributes else []
        if tag == "section":
            self.section = attributes["id"]
        if tag in ("td", "th"):
            self.cells.setdefault(self.section, []).append([tag, attributes.get("class", ""), ""])
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "h2" in self.open:
            self.headings.append(data)
        elif {"td", "th"} & set(self.open):
            self.cells[self.section][-1][2] += data

    def of(self, section, kind):
        """Texts of the cells with a class in a section."""
        return [text for _, classes, text in self.cells[section] if kind in classes.split()]


@pytest.fixture
def written():
    def write(page):
        return Page(render_document(walkthrough_document(page)))

    return write


def test_every_stage_has_a_section_with_its_shape_and_explanation(walkthrough, written, epochs):
    content = walkthrough(history=epochs)
    page = written(content)
    assert page.headings == [*(f"{i}. {stage.title}" for i, stage in enumerate(content.stages, start=1)), "Training"]
    for stage in content.stages:
        assert f"<p>{stage.text}</p>" in page.text and f"<p>{stage.note}</p>" in page.text
    assert page.text.count("<b>(3, 4) = (rows, tokens)</b>") == len(content.stages) - 1
    assert "<b>4 levels, 8 nodes</b>" in page.text and "<span>4 levels, 8 nodes</span>" in page.text
    assert "Row 2 (id r1)" in page.text
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= page.ids


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"cell": "lstm", "bidirectional": True, "pooling": "max"}, "bidirectional LSTM, pooling max"),
        (
            {"_target_": ADAPTIVE, "cell": "lstm", "bidirectional": False, "pooling": "max"},
            "adaptive, LSTM, pooling max",
        ),
        ({"encoder": {"_target_": TREE_LSTM}, "composition": "binary"}, "Tree-LSTM, binary"),
        (
            {"encoder": {"_target_": TREE_LSTM}, "composition": "child_sum", "members": 2},
            "2 networks: Tree-LSTM, child sum",
        ),
    ],
)
def test_the_model_is_named_with_what_makes_it_special(walkthrough, written, model, expected):
    assert f"<dt>model</dt><dd>{expected}</dd>" in written(walkthrough(model=model)).text


def test_a_model_of_trees_has_no_packed_sequences(walkthrough, written):
    content = walkthrough()
    assert "packed sequences" in written(content).text
    stages = list(content.stages)
    stages[2] = replace(stages[2], content=replace(stages[2].content, may_pack=False))
    text = written(replace(content, stages=stages)).text
    assert "packed" not in text and "Of 12 cells 8 are tokens." in text


def test_the_page_needs_nothing_else_and_escapes_tokens(walkthrough, written, epochs):
    page = written(walkthrough(history=epochs))
    assert all(link.startswith("#") for link in page.links) and "default-src 'none'" in page.text
    assert "<b>&<" not in page.text and "&lt;b&gt;&amp;" in page.text
    assert not re.search(r"\bsrc=|url\((?!#)|@import|<script", page.text)


def test_numbers_stand_in_the_cells_and_padding_is_hatched_and_empty(walkthrough, written):
    content = walkthrough()
    page = written(content)
    vectors = content.stages[3].content
    numbers = [text for _, classes, text in page.cells["4-vectors"] if set(classes.split()) & {"up", "down"}]
    inside = [
        f"{value:.2f}".replace("-0.00", "0.00")
        for row, length in enumerate(vectors.lengths)
        for channel in vectors.channels
        for value in vectors.values[row, :length, channel]
    ]
    assert numbers == inside
    pads = page.of("4-vectors", "pad")
    assert len([text for text in pads if not text]) == 4 * len(vectors.channels) and "nan" not in page.text.lower()
    assert [text for text in page.of("3-padded-batch", "pad") if text] == []
    assert len(page.of("3-padded-batch", "pad")) == 4
    assert page.of("2-encoded-tokens", "unknown") == ["0 ?", "0 ?", "0 ?"]


def test_the_active_batch_sizes_stand_below_their_columns(walkthrough, written):
    page = written(walkthrough())
    active = re.findall(r'<td class="active" style="--share:([\d.]+%)">(\d*)</td>', page.text)
    assert active == [("100.0%", "3"), ("66.7%", "2"), ("66.7%", "2"), ("33.3%", "1")]


def test_the_chosen_token_and_the_predicted_class_are_marked(walkthrough, written):
    content = walkthrough()
    page = written(content)
    assert len(page.of("6-stop", "marked")) == 3 and {"3: halts", "4: end"} <= {
        text for _, _, text in page.cells["6-stop"]
    }
    logits = content.stages[10].content
    best = [f"{values[index]:.2f}" for values, index in zip(logits.values, logits.predicted, strict=True)]
    assert page.of("11-logits", "marked") == best


def test_what_is_left_out_is_said_and_bounds_the_page(walkthrough, written):
    page = written(walkthrough([900, *[150] * 49], classes=100, channels=64))
    assert len(page.text) < 3_000_000
    assert "the first 200 of 900 tokens" in page.text and "the first 80 of 900 columns" in page.text
    assert "a stage shows about 4,000 cells" in page.text
    assert "the 12 of 100 classes with the largest values" in page.text
    assert "Active batch size from position 1 (50 rows) to 900 (1)" in page.text


def test_a_walkthrough_without_epochs_and_refusals_has_no_such_parts(walkthrough, written):
    page = written(walkthrough(refused=[]))
    assert "Training" not in page.headings and "left out" not in page.text


def test_the_epoch_of_the_model_is_the_strong_one(walkthrough, written, epochs):
    text = written(walkthrough(history=epochs)).text
    strong = re.search(r'<tr class="strong">(.*?)</tr>', text, re.DOTALL)[1]
    assert re.findall(r">([^<]+)</t[dh]>", strong) == ["2", "0.2500", "1.0000", "0.8750"]


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_only_frames_scroll_sideways(walkthrough, tmp_path, width):
    names = []
    for name, page in {"short": walkthrough(), "long": walkthrough([300] * 5, classes=100)}.items():
        text = render_document(walkthrough_document(page))
        (tmp_path / f"{name}.html").write_text(with_script(text, REPORT_WIDTH), encoding="utf-8")
        names.append(f"{name}.html")
    assert content_widths(tmp_path, names, width) == [width, width]
