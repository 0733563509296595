"""Counters and histograms with little overhead on the request thread."""
