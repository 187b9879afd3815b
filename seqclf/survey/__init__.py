"""Statistics of a dataset before training, such as class counts, lengths, a baseline and target leakage.

This package does not import PyTorch.
"""
