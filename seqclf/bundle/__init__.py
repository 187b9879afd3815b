"""Predictions with a bundle, the exported model of a run. No module in this folder imports torch."""
