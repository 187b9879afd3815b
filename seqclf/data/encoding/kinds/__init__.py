"""Field kinds. Each field kind has a module of the same name. The module of a field kind contains one encoder class."""
