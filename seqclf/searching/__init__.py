"""Settings tried one after the other → the best ones. Needs Optuna (the extra `sweep`)."""
