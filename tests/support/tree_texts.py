"""Trees as nested tuples (word, children), written as text, and without some of their nodes."""

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


def without(tree, gone, path=()):
    """The tree without the nodes at the paths `gone`. None if nothing is left."""
    word, children = tree
    if path in gone:
        return None
    left = [rest for n, child in enumerate(children) if (rest := without(child, gone, (*path, n))) is not None]
    if children and not word and len(left) < len(children) and len(left) < 2:
        return left[0] if left else None
    return word, left


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


def below(parents, top):
    """Nodes of the subtree of `top`, an index into `parents`."""
    nodes = []
    for node in range(len(parents)):
        above = node
        while above not in (top, -1):
            above = parents[above]
        nodes += [node] * (above == top)
    return nodes
