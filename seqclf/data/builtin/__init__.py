"""Datasets that the package contains or generates."""
