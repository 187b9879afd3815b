"""Batch → logits."""
