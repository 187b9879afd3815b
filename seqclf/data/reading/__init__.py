"""Read source files as Arrow record batches with canonical columns."""
