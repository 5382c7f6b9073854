"""Explain any figure: what each room says of it, on one page."""
