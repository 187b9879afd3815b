"""Trees as nested tuples (word, children), written as text."""

import json

from hypothesis import strategies as st


def trees(words, inner_words=("",)):
    """Strategy of trees of a few nodes. The word "" is none."""
    leaves = st.tuples(st.sampled_from(words), st.just([]))
    inner = st.sampled_from(inner_words)
    return st.recursive(leaves, lambda node: st.tuples(inner, st.lists(node, min_size=1, max_size=4)), max_leaves=9)


def postorder(tree, path=()):
    """The path of each node, a tuple of child numbers."""
    return [path_below for n, child in enumerate(tree[1]) for path_below in postorder(child, (*path, n))] + [path]


def written(tree, form):
    word, children = tree
    if form.startswith("lists"):
        paths = postorder(tree)
        words = [node_at(tree, path)[0] for path in paths]
        parents = [paths.index(path[:-1]) if path else -1 for path in paths]
        return json.dumps({"tokens": words, "parents": parents})
    if form.startswith("expressions"):
        return f"({' '.join([word, *(written(child, form) for child in children)])})"
    return f"(t {' '.join(written(child, form) for child in children) if children else word})"


def node_at(tree, path):
    for number in path:
        tree = tree[1][number]
    return tree
