"""Background pipeline that takes a finished RAG call to its scores: queue, worker thread, spool file and shutdown."""
