"""Encoded datasets on disk, stored as ragged, memory-mapped arrays."""
