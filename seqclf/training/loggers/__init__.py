"""Experiment loggers beside `metrics.csv`, each a module with the interface of `run_logger.py`."""
