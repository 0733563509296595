"""Background pipeline from a finished call to its scores: queue, worker thread, spool file and shutdown."""
