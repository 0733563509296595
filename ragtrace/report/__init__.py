"""Reports on a local history of scored calls: metric estimates over time, what changed, and the worst answers."""
