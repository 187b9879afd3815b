"""Debugging of a training: shapes, one batch, non-finite values, operations."""
