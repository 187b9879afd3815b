"""Lengths → plan → padded batches. `plan` and `collate` are pure numpy and shared with prediction."""
