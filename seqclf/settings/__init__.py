"""Keys of the configs of all commands: type, default and description of each, without PyTorch and Hydra."""
