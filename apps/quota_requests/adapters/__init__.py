"""What this room asks of the database beside its tables."""
