"""A package outside of seqclf that extends it. A user would install it; the tests add this folder to PYTHONPATH.

It brings two encoders, one that cannot be exported, a network, a loss and a callback. `conf/` beside it is its
`--config-dir`.
"""
