"""Processes of a training: ranks, and the settings of PyTorch that a run changes and restores."""
