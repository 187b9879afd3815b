"""Source files to Arrow record batches of canonical columns."""
