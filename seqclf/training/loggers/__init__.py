"""Experiment loggers that are used in addition to `metrics.csv`.

Each logger is one module with the interface of `run_logger.py`.
"""
