"""Networks that read trees."""
