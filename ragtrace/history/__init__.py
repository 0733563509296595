"""SQLite files of ragtrace: the history of RAG calls with their scores, and the spool of calls not yet scored."""
