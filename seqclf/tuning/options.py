"""The config of `search`, checked without PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from seqclf.config.options import Count, Options, Seed
from seqclf.training.options import TrainConfig
from seqclf.tuning.space import check_space


def require_space(space: dict[str, Any]) -> dict[str, Any]:
    """Refuse a search space with a range or a list that nothing can be drawn from."""
    check_space(space)
    return space


Space = Annotated[dict[str, Any], AfterValidator(require_space)]


class SearchOptions(Options):
    """The block search of conf/search.yaml, which explains each key and holds its default."""

    space: Space | None
    usual: Space
    trials: Count
    metric: str
    direction: Literal["maximize", "minimize"]
    seed: Seed


class SearchConfig(TrainConfig):
    """The config of every trial, and how to search."""

    search: SearchOptions
