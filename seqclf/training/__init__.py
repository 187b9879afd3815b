"""The Lightning module, its losses, metrics, callbacks, checkpoints and loggers."""
