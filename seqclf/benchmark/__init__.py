"""Cost of dynamic graphs compared with static ones: time, memory and leaks on the same model and batches."""
