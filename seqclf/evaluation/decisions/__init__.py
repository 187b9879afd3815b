"""Decisions: thresholds with guarantees on held-out rows, and whether targets hold."""
