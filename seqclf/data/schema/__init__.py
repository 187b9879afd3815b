"""Fields, label and id of a data file, and how they are inferred."""
