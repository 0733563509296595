"""Command `ragtrace review`, a local web page on which people label stored RAG calls."""
