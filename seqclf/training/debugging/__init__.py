"""Tools to debug a training: module shapes, training on one batch, and detection of non-finite values."""
