"""Raw files → validated, encoded, ragged datasets on disk. No module here imports torch."""
