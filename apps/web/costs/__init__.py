"""Money, as pages show it: costs by group, the waste waterfall, closed months, files."""
