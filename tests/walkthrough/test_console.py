"""The walkthrough in the terminal: the same stages as on the page, in lines that fit."""

import re

import pytest
from rich.cells import cell_len

from seqclf.documents.terminal import MAX_HEAT_MAPS, PADDING, console, show_document, show_section
from seqclf.walkthrough.document import walkthrough_document


@pytest.fixture
def printed(monkeypatch):
    """`printed(walkthrough, title, width)`: lines of the stage with this title, or of all stages without one."""

    def lines(walkthrough, title=None, width=100):
        monkeypatch.setattr(console, "_width", width)
        document = walkthrough_document(walkthrough)
        with console.capture() as captured:
            if title is None:
                show_document(document, alert_prefix="")
            else:
                show_section(next(section for section in document.sections if section.heading.endswith(f" {title}")))
        return captured.get().splitlines()

    return lines


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize(("lengths", "classes"), [([3, 1, 4], 3), ([1], 2), ([200, 7], 100), ([2] * 50, 3)])
def test_every_line_of_numbers_fits_the_terminal(walkthrough, printed, width, lengths, classes):
    for title in ("Vectors", "Stop", "Pairs", "Pooled", "Logits", "Levels", "Labels"):
        for line in printed(walkthrough(lengths, classes), title, width)[2:]:
            is_sentence = line.endswith((":", ".", "more columns"))  # the terminal wraps it
            assert is_sentence or cell_len(line.rstrip()) <= width, (title, line)


def test_padding_and_active_batch_sizes_are_shown(walkthrough, printed):
    lines = printed(walkthrough(), "Padded batch")
    assert [line.count(PADDING) for line in lines if re.match(r"\d+ \(id r\d\): ", line)] == [1, 3, 0]
    assert next(line for line in lines if "active batch size" in line).split()[-4:] == ["3", "2", "2", "1"]
    assert any(line.split() == ["tokens", "int64", "(3,", "4)"] for line in lines)


def test_unknown_tokens_are_marked(walkthrough, printed):
    first = next(line for line in printed(walkthrough(), "Encoded tokens") if line.startswith("encoded"))
    assert first.split() == ["encoded", "4", "0", "?", "1"]


def test_a_vector_is_shown_by_numbers_and_padding_by_none(walkthrough, printed):
    page = walkthrough()
    content = next(stage.content for stage in page.stages if stage.title == "Vectors")
    lines = printed(page, "Vectors")
    (first, *_) = [line.split() for line in lines if line.startswith("forward 1")]
    assert first == ["forward", "1", *(f"{value:.2f}" for value in content.values[0, :3, 0]), PADDING]
    assert not any("nan" in line for line in lines)


def test_the_token_at_which_a_row_halts_is_marked(walkthrough, printed):
    lines = printed(walkthrough(), "Stop")
    assert [re.findall(r"\d+: (?:halts|end)", line) for line in lines if ": " in line and "Row" not in line] == [
        ["3: halts"],
        ["1: end"],
        ["4: end"],
    ]


def test_the_steps_of_trees_go_from_the_deepest_level_to_the_roots(walkthrough, printed):
    lines = [line.split() for line in printed(walkthrough(), "Levels")]
    steps = [line for line in lines if line[:1] and line[0].isdigit()]
    assert [line[0] for line in steps] == ["1", "2", "3", "4"] and steps[-1][1:4] == ["roots", "3", "3"]
    assert "4 levels, 8 nodes" in printed(walkthrough(), "Levels")[1]


def test_rows_that_are_not_shown_are_counted(walkthrough, printed):
    assert printed(walkthrough([2] * (MAX_HEAT_MAPS + 1)), "Vectors")[-1] == "… 1 more row"
    assert printed(walkthrough([2] * (MAX_HEAT_MAPS + 2)), "Vectors")[-1] == "… 2 more rows"
    assert any(line.startswith("… 89 more columns") for line in printed(walkthrough([100]), "Vectors", 120))


def test_raw_rows_say_the_name_in_the_input_of_each_number(walkthrough, printed):
    lines = printed(walkthrough(), "Raw rows")
    assert any(line.startswith("1 (id r0)  ") for line in lines) and any(
        line.startswith("2 (id r1)  ") for line in lines
    )


def test_probabilities_say_right_and_wrong_where_the_label_is_known(walkthrough, printed):
    page = walkthrough()
    content = page.stages[-1].content
    content.labels[1:] = [content.classes[content.predicted[1]], "another"]
    text = "\n".join(printed(page, "Labels", 160))
    assert text.count(": right") == 1 and text.count("another: wrong") == 1


def test_the_epochs_have_the_columns_of_the_textbook(walkthrough, printed, epochs):
    lines = [line.split() for line in printed(walkthrough(history=epochs))]
    start = lines.index(["Epoch", "Loss", "Accuracy", "Recall"])
    assert lines[start + 1 : start + 3] == [["1", "1.2500", "0.5000", "0.3750"], ["2", "0.2500", "1.0000", "0.8750"]]
    many = walkthrough(history=[{"epoch": epoch, "train/loss": 1.0} for epoch in range(40)])
    assert any("… 27 more" in line for line in printed(many))


def test_the_whole_walkthrough_is_printed_in_order(walkthrough, printed):
    page = walkthrough()
    text = "\n".join(printed(page))
    positions = [text.index(f"\n{number}. {stage.title}") for number, stage in enumerate(page.stages, start=1)]
    assert positions == sorted(positions) and text.splitlines()[-1] == "left out: row 9: is empty"
    assert all(f"\nNote on {stage.title}.\n" in text for stage in page.stages)
