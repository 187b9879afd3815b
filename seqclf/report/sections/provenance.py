"""The provenance section of a report: training cost, package versions and configuration."""

from __future__ import annotations

import yaml

from seqclf.documents.blocks import Block, Code, Folded, Section, Text
from seqclf.documents.formatting import NO_VALUE, number, percent
from seqclf.report.report import Report


def provenance_section(report: Report) -> Section:
    """Return the package versions. For a training run, also return its throughput, memory and configuration."""
    blocks: list[Block] = []
    if report.history:
        last = report.history[-1]
        blocks.append(
            Text(
                f"{len(report.history)} epochs. The last: {number(last['tokens_per_s'])} tokens a second without "
                f"padding, padding efficiency {percent(last['padding_efficiency'])}, {number(last['memory_mb'])} "
                "MB of memory."
            )
        )
    if report.versions:
        versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
        blocks.append(Text(versions, soft=True))
    if report.config is not None:
        config = yaml.safe_dump(dict(report.config), sort_keys=False, allow_unicode=True)
        blocks.append(Folded("Configuration", [Code(config)]))
    return Section("Provenance", blocks or [Text(NO_VALUE)])
