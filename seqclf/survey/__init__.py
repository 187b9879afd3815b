"""A dataset looked over before it is trusted. No module here imports torch."""
