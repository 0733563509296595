"""Human labels of RAG calls: their store, the choice of calls to label, and canaries that show when a judge drifts."""
