"""seqclf: train classifiers on sequences of different lengths and serve them without PyTorch."""

__version__ = "0.2.0"
