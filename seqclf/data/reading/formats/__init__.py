"""File formats: a class each, which turns its files into SQL that DuckDB reads."""
