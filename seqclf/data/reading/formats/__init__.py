"""File formats: each turns its files into SQL that DuckDB reads."""
