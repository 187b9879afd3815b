"""Assignment of rows to train, validation and test, and leakage between them."""
