"""Trees with bars in the terminal."""

from seqclf.bundle.explanation_lines import show_tree_bars, tree_lines

TOKENS = ["not", "bad", "film", "[NODE]", "[NODE]"]
PARENTS = [4, 3, 3, 4, -1]


def lines_of(capsys, *arguments):
    show_tree_bars("pos", *arguments)
    return capsys.readouterr().err.splitlines()


def test_nodes_are_drawn_from_the_root_down_in_the_order_of_the_text(capsys):
    lines = lines_of(capsys, TOKENS, PARENTS, [2.0, -1.0, 0.0, -1.5, 0.5], {})
    drawn = [line for line in lines if "│" in line]
    assert [int(line.split()[0]) for line in drawn] == [5, 1, 4, 2, 3]
    assert [line.split("│")[1][14:].rstrip() for line in drawn] == [
        "not bad film",
        "  not",
        "  bad film",
        "    bad",
        "    film",
    ]
    assert "+2.000" in drawn[1] and "more nodes" not in "".join(lines)


def test_the_word_of_an_inner_node_is_its_text_and_has_its_own_contribution(capsys):
    lines = lines_of(capsys, ["2", "4", "MAX"], [2, 2, -1], [0.1, 0.2, 0.3], {"tree": [0.0, 0.0, -0.7]})
    assert "MAX  (tree -0.700)" in lines[2]


def test_a_large_tree_shows_its_strongest_nodes_below_the_shown_ones_above_them(capsys):
    depth = 3000
    tokens, parents = [f"w{node}" for node in range(depth)], [*range(1, depth), -1]
    contributions = [0.01] * depth
    contributions[7], contributions[2000] = -2.0, 3.0
    lines = lines_of(capsys, tokens, parents, contributions, {})
    assert sum("│" in line for line in lines) == 60 and "2,940 more nodes" in lines[-1]
    assert max(map(len, lines)) < 120
    nodes = {line.node: line.depth for line in tree_lines(tokens, parents, [7, 2000])}
    assert nodes == {2000: 0, 7: 1}


def test_phrases_of_lists_are_in_the_order_of_the_lists():
    tokens, parents = ["[NODE]", "bad", "not", "film", "[NODE]"], [-1, 4, 0, 4, 0]
    assert [line.text for line in tree_lines(tokens, parents, [0, 4])] == ["bad not film", "bad film"]
