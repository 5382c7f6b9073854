"""What `make bench` measures, and the data that it measures on."""
