"""Networks from a batch to logits, and their export to ONNX."""
