"""Pages of planning: what would be."""
