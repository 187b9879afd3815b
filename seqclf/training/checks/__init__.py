"""Checks before a training: classes that a config names, and networks of other packages."""
