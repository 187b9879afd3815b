"""Metrics and curves → tables and pictures."""
