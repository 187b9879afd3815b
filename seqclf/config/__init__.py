"""Configuration with Hydra: define commands, check configs, and build objects from `_target_` dicts."""
