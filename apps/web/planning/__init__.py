"""Pages of planning: what would be, and where there is room."""
