"""The network of `model=auto`: a frozen front end, and heads that read its outputs and whose logits are added."""
