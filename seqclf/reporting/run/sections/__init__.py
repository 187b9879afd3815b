"""Sections of the report of a run: a module each, which defines one `ReportSection`. There is no other list of them."""
