"""Functions close to the operating system: atomic file writes, file locks, signals, memory use and package versions."""
