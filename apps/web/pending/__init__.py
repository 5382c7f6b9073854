"""What waits, as pages show it: causes in words, lines of the list, sums, history, one thing."""
