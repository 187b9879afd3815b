"""The config of `search`, checked without PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from seqclf.config.options import Count, Options, Seed
from seqclf.errors import InputError
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

    @model_validator(mode="after")
    def check_scores(self) -> SearchConfig:
        """Refuse trials that score nothing."""
        if self.debug.ends_early:
            raise InputError(
                f"debug={self.debug.name}", "leaves no scores to compare", "remove it, or use seqclf train"
            )
        if self.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no scores to compare", "set trainer.max_epochs=1 instead")
        return self
