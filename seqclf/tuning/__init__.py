"""Hyperparameter search. Needs Optuna (the extra `sweep`)."""
