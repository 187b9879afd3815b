"""The walkthrough in the terminal: lines that fit, and what they say of every stage."""

import numpy as np
import pytest
from rich.cells import cell_len

from seqclf.walkthrough.console import content_lines, epoch_lines, show_walkthrough
from seqclf.walkthrough.stages import ROW_NAME, RawRows


def lines_of(page, title, width=100):
    return list(content_lines(next(stage.content for stage in page.stages if stage.title == title), width))


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize(("lengths", "classes"), [([3, 1, 4], 3), ([1], 2), ([200, 7], 100), ([2] * 50, 3)])
def test_every_line_fits_the_terminal(walkthrough, width, lengths, classes):
    for stage in walkthrough(lengths, classes).stages:
        for line in content_lines(stage.content, width):
            assert cell_len(line) <= width, (stage.title, line)


def test_padding_and_active_batch_sizes_are_shown(walkthrough):
    first, second, third, active, lengths, inputs = lines_of(walkthrough(), "Padded batch")
    assert (first.count("░"), second.count("░"), third.count("░")) == (2, 6, 0)  # cells of two characters
    assert active.split() == ["active", "3", "2", "2", "1"] and lengths.split() == ["lengths", "3", "1", "4"]
    assert inputs.split(maxsplit=1) == ["inputs", "tokens int64 (3, 4)"]


def test_unknown_tokens_are_named_so(walkthrough):
    first = lines_of(walkthrough(), "Encoded tokens")[0]
    assert "<b>&→4" in first and "␣→0 unknown" in first and "a→1" in first


def test_a_vector_is_shown_by_bars_and_numbers_and_padding_by_neither(walkthrough):
    page = walkthrough()
    content = next(stage.content for stage in page.stages if stage.title == "Vectors")
    lines = lines_of(page, "Vectors")
    assert lines[0].strip() == "channels of 6: forward 1, 2, 3; backward 1, 2, 3"
    assert f"{content.values[0, 0, 0]:+.2f}" in lines[1]
    assert [line.split() for line in lines if "padding" in line] == [
        [str(count), "padding", "░" * 6] for count in (1, 3)
    ]
    assert not any("nan" in line for line in lines)


def test_the_token_at_which_a_row_halts_is_marked(walkthrough):
    first, second, _ = lines_of(walkthrough(), "Stop")
    assert first.endswith("← halts") and first.count("←") == 1 and second.endswith("← end")
    (long,) = lines_of(walkthrough([200]), "Stop")
    assert "[200]" in long and "← halts" in long, "the mark is shown however many tokens there are"


def test_the_steps_of_trees_go_from_the_deepest_level_to_the_roots(walkthrough):
    lines = lines_of(walkthrough(), "Levels")
    assert [line.split()[:2] for line in lines] == [["step", str(step)] for step in (1, 2, 3, 4)]
    assert "1 node of 1 tree " in lines[0] and "3 nodes of 3 trees" in lines[-1] and "roots" in lines[-1]


def test_the_columns_of_deep_trees_are_as_wide_as_their_values(walkthrough):
    lines = lines_of(walkthrough([2000]), "Levels")
    assert lines[0].startswith("  step 1     depth 1999  1 node of 1 tree  ")
    assert lines[8].strip() == "… 1,989 more levels" and lines[-1].split("  ")[1] == "step 2000"
    assert {line.index("1 node of 1 tree") for line in lines if "node" in line} == {lines[0].index("1 node")}


def test_one_row_left_out_is_singular(walkthrough):
    assert lines_of(walkthrough([2] * 13), "Raw rows")[-1].strip() == "… 1 more row"
    assert lines_of(walkthrough([2] * 14), "Pooled")[-1].strip() == "… 2 more rows"


def test_raw_rows_say_the_name_in_the_input_of_each_number(walkthrough):
    first, second, _ = lines_of(walkthrough(), "Raw rows")
    assert first.startswith("  1 (id r0)  ") and second.startswith("  2 (id r1)  ")


def test_probabilities_say_right_and_wrong_where_the_label_is_known(walkthrough):
    page = walkthrough()
    content = page.stages[-1].content
    content.labels[1:] = [content.classes[content.predicted[1]], "another"]
    first, second, third = lines_of(page, "Labels")
    assert "right" not in first and "right:" in second and "wrong, is another:" in third


def test_the_epochs_have_the_columns_of_the_textbook(walkthrough, epochs):
    assert epoch_lines(walkthrough(history=epochs)) == [
        "Epoch |   Loss | Accuracy | Recall",
        "    1 | 1.2500 |   0.5000 | 0.3750",
        "    2 | 0.2500 |   1.0000 | 0.8750",
    ]
    many = walkthrough(history=[{"epoch": epoch, "train/loss": 1.0} for epoch in range(40)])
    lines = epoch_lines(many)
    assert len(lines) == 16 and any("26 more" in line for line in lines)


def test_the_whole_walkthrough_is_printed_in_order(walkthrough, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    page = walkthrough()
    show_walkthrough(page)
    printed = capsys.readouterr().err
    positions = [printed.index(f"\n{number} {stage.title}") for number, stage in enumerate(page.stages, start=1)]
    assert positions == sorted(positions) and "left out: row 9: is empty" in printed
    assert all(f"\n  Note on {stage.title}.\n" in printed for stage in page.stages)
    assert "Levels  4 levels, 8 nodes\n" in printed
    assert "the bundle gives the same logits; the largest difference is 3.0e-07" in printed


def test_a_strip_of_equal_values_needs_no_scale(walkthrough):
    page = walkthrough([1])
    content = next(stage.content for stage in page.stages if stage.title == "Pooled")
    content.values[:] = 0
    assert "▅" * 6 in lines_of(page, "Pooled")[1] and np.isfinite(content.values).all()


def test_a_column_named_row_is_shown_beside_the_name_of_the_row():
    rows = RawRows([{ROW_NAME: "", "row": "a b"}], [None], np.array([2]))
    assert [line.split() for line in content_lines(rows, 80)] == [["1", "a", "b"]]
