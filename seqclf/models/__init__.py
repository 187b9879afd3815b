"""Networks that map a batch of sequences to logits, and the export of networks to ONNX."""
