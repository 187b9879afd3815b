"""Hydra configuration: the command decorator, config checks, and objects from `_target_` dicts."""
