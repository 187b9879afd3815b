"""Plan batches by length and pad them. `plan` and `collate` use only NumPy, because prediction imports them."""
