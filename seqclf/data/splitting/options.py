"""The keys of data.split.*, checked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqclf.config.options import Options, Share, Text, ZeroOrMore


class SplitOptions(Options):
    """The block split of conf/data/files.yaml: how train is divided where a split has no file."""

    by: Literal["random", "distinct", "group", "time", "fold"]
    column: Text | None
    validation: Share
    test: Share
    folds: Annotated[int, Field(ge=2)]
    fold: ZeroOrMore
    seed: ZeroOrMore
    on_leak: Literal["warn", "error", "drop", "drop_earlier"]

    def shares(self, splits_with_file: set[str]) -> dict[str, float]:
        """Return the share of train that becomes validation and test, except where these have a file."""
        shares = {"validation": self.validation, "test": self.test}
        return {name: share for name, share in shares.items() if name not in splits_with_file}
