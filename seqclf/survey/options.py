"""The config of `describe`, checked."""

from __future__ import annotations

from seqclf.batching.options import BatchingOptions
from seqclf.config.options import CommandOptions, Text
from seqclf.data.options import DataOptions


class DescribeConfig(CommandOptions):
    """conf/describe.yaml, which explains each key and holds its default.

    The keys that experiments set for training only are not checked here.
    """

    data: DataOptions
    batching: BatchingOptions
    output: Text | None
    baseline: bool
