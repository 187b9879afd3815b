"""Loggers in addition to `metrics.csv`: one module each, all with the interface of `run_logger.py`."""
