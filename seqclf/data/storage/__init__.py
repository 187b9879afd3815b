"""Encoded datasets on disk: ragged, memory-mapped arrays."""
