"""Order-blind models from scikit-learn that the network is compared with."""
