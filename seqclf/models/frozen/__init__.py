"""The frozen front end: what a network computes of a batch before its heads, without training."""
