"""A package outside of seqclf that extends it. A user would install it; the tests add this folder to PYTHONPATH.

It brings encoders, one that cannot be exported among them, a network, a field kind, a loss and a callback. `conf/` beside
it is its `--config-dir`, and the metadata of an installed package name the field kind.
"""
