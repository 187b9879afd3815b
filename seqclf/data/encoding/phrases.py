"""Texts of the nodes of a tree that have no word: those of the words below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_PHRASE = 60  # characters, after which words are left out


def subtree_sizes(parents: Sequence[int]) -> list[int]:
    """Return the number of nodes of each subtree. `parents`: of nodes in postorder, -1 for roots.

    >>> subtree_sizes([2, 2, 4, 4, -1])
    [1, 1, 3, 1, 5]
    """
    sizes = [1] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sizes[parent] += sizes[node]
    return sizes


def node_texts(
    tokens: Sequence[str], parents: Sequence[int], is_wordless: Sequence[bool], nodes: Sequence[int]
) -> list[str]:
    """Return the text of each of `nodes`: its token, or the words below a node without one.

    `tokens`, `parents` (see `subtree_sizes`), `is_wordless`: of all nodes of the tree. A leaf keeps its token.

    >>> node_texts(["bad", "film", "[NODE]"], [2, 2, -1], [False, False, True], [0, 2])
    ['bad', 'bad film']
    """
    sizes = subtree_sizes(parents)
    return [
        phrase(tokens[below] for below in range(node - sizes[node] + 1, node) if not is_wordless[below])
        if is_wordless[node] and sizes[node] > 1
        else tokens[node]
        for node in nodes
    ]


def phrase(words: Iterable[str]) -> str:
    """Join words, as many as fit.

    >>> phrase(["not", "bad"])
    'not bad'
    """
    text = ""
    for word in words:
        if len(text) + len(word) > LONGEST_PHRASE and text:
            return f"{text} …"
        text = f"{text} {word}".lstrip()
    return text
