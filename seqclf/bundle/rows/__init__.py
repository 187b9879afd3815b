"""Rows to predict: from files and tables in windows, from Python, and from events."""
