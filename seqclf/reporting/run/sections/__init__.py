"""Sections of the report of a run: a function each, which returns a template and its variables."""
