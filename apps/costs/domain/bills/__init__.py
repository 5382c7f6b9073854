"""Bills of providers: reading their lines, spreading them over days, and what they differ by."""
