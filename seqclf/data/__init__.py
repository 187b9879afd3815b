"""Turn raw files into validated, encoded, ragged datasets on disk. No module of this package imports torch."""
