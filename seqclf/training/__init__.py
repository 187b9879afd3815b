"""The Lightning module and what surrounds it: losses, metrics, callbacks, checkpoints and loggers."""
