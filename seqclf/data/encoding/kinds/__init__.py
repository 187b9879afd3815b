"""Field kinds: one module each, named like the kind, with one class."""
