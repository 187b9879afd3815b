"""Statistics of a dataset before training, without PyTorch: class counts, lengths, a baseline and target leakage."""
