"""Survey of a dataset before it is trusted: class counts, lengths, baseline, target leakage. Loads no PyTorch."""
