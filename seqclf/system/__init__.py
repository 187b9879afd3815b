"""Operating-system services: atomic files, locks, signals, memory and versions."""
