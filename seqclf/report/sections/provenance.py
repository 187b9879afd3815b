"""Provenance of a report: cost of the training, versions and configuration."""

from __future__ import annotations

from typing import ClassVar

import yaml

from seqclf.documents.html import Section
from seqclf.report.report import Report
from seqclf.report.section import ReportSection


class ProvenanceSection(ReportSection):
    """Cost, versions and configuration."""

    position: ClassVar[float] = 100

    def build(self, report: Report) -> Section:
        """Return the versions and, for a training run, its cost and configuration."""
        config = report.config
        context = {
            "epochs": len(report.history),
            "last_epoch": report.history[-1] if report.history else None,
            "versions": report.versions,
            "config": None if config is None else yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
        }
        return Section("run/provenance.html", context)
