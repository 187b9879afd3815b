"""A package outside of seqclf that extends it. A user would install it; the tests add this folder to PYTHONPATH.

It brings encoders (one cannot be exported), a network, a field kind, a loss, a callback, a file format and a report
section. `conf/` beside it is its `--config-dir`, and the metadata of an installed package names the plugins.
"""
