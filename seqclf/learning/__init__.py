"""Logits → loss, metrics, decisions."""
