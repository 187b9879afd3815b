"""Schema of a data file, inference of cell types, and reasons for rejected rows."""
