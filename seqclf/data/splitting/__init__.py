"""Assign rows to the splits train, validation and test, and check for leakage between these splits."""
