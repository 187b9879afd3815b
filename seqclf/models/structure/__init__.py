"""Changes to the structure of a network during training, such as more layers or wider layers."""
