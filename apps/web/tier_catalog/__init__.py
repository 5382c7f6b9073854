"""The tiers as they are offered to those who ask for GPUs."""
