"""Cache folders of prepared data: fingerprints, checksums and verification."""
