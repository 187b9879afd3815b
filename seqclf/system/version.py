"""The version of this package, read by the build too."""

__version__ = "0.3.0"
