"""What work came to nothing, and where it failed."""
