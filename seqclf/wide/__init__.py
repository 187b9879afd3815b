"""Wide paths: strong simple models of a sequence, which run beside the network and are mixed with it."""
