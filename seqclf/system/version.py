"""Version number of this package. The build of the package also reads the version from this file."""

__version__ = "0.4.0"
DISTRIBUTION, RUNTIME = "seqclf", "seqclf-runtime"  # packages on PyPI: the whole, and what predicts without PyTorch
