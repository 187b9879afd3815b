"""Built-in file formats. Each format is a class that returns the SQL by which DuckDB reads its files."""
