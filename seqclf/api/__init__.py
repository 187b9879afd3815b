"""The Python API: train, open and use runs in a program or a notebook."""
