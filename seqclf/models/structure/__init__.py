"""Changes of the structure of a network that is being trained."""
