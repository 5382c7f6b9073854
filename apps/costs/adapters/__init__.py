"""Cost files as bytes: their formats, and where they are kept."""
