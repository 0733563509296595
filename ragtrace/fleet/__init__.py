"""Queue of RAG calls at a broker, with its two ends: processes that publish calls, and workers that judge them."""
