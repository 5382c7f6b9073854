"""Pages of failed work."""
