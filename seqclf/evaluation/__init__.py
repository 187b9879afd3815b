"""Metrics, confidence intervals, decision thresholds and alarms. No module here imports torch."""
