"""Plan, sort and pad batches by length. `plan` and `collate` are pure NumPy and shared with prediction."""
