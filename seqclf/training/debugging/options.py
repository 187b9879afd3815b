"""The options of debugging: conf/debug/*.yaml explain each key and hold its default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator

from seqclf.config.options import Count, Options, Positive


class PlainDebugOptions(Options):
    """The choices without settings."""

    name: Literal["none", "shapes", "nan", "anomaly"]

    @property
    def ends_early(self) -> bool:
        """True if there is no trained model at the end."""
        return self.name == "shapes"


class OverfitOptions(Options):
    """conf/debug/overfit_one_batch.yaml."""

    name: Literal["overfit_one_batch"]
    steps: Count
    goal: Positive  # mean loss of a row

    @property
    def ends_early(self) -> bool:
        """True, as there is no trained model at the end."""
        return True


DebugOptions = Annotated[OverfitOptions | PlainDebugOptions, Discriminator("name")]
