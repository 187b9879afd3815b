"""The price of dynamic against static graphs: the same model, weights, sequences and updates, timed side by side."""
