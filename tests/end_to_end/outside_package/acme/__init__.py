"""A package outside of seqclf that extends it. A user would install it; the tests add this folder to PYTHONPATH.

It brings encoders (one cannot be exported), a network, recurrent cells, a loss and a callback. `conf/` beside it is its
`--config-dir`.
"""
