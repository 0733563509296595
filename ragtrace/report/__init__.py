"""Reports on a local history of scored RAG calls: metric estimates over time, changes, and the worst answers."""
