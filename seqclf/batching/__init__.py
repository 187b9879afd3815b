"""Plan batches by length and pad them.

The modules `plan` and `collate` use only NumPy, and prediction imports both of them.
"""
