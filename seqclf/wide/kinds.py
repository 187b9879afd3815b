"""Kinds of wide paths: those of this package by name, others by the dotted path of their class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqclf.config.hints import did_you_mean
from seqclf.config.targets import locate_subclass
from seqclf.errors import InputError
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.kernels import Kernels
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.path import WidePath
from seqclf.wide.statistics import Statistics

# A later path takes part only where it adds something to those before it, so the simplest ones stand first. Trees stand
# last, because they need not be fitted where a quick look shows no gain.
BUILT_IN: dict[str, type[WidePath]] = {
    "ngrams": Ngrams,
    "statistics": Statistics,
    "kernels": Kernels,
    "trees": BoostedTrees,
}


def locate_kinds(names: Sequence[str]) -> list[type[WidePath]]:
    """Return the classes of wide paths, in the order of `names`. Raises InputError for a name that is none.

    >>> locate_kinds(["ngrams", "seqclf.wide.kernels.Kernels"])
    [<class 'seqclf.wide.ngrams.Ngrams'>, <class 'seqclf.wide.kernels.Kernels'>]
    """
    return [_locate(name) for name in dict.fromkeys(names)]


def dotted_paths(setting: Any) -> list[str]:
    """Return the dotted paths of the classes that `model.wide` names. `setting`: the value of `model.wide`."""
    return [name for name in setting if name not in BUILT_IN] if isinstance(setting, (list, tuple)) else []


def _locate(name: str) -> type[WidePath]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if "." not in name:
        known = f"it must be {', '.join(BUILT_IN)} or the dotted path of a class, as in mypackage.paths.Motifs"
        raise InputError(f"model.wide=[{name}]", "no such wide path", did_you_mean(name, BUILT_IN) or known)
    return locate_subclass(name, WidePath, "model.wide")
