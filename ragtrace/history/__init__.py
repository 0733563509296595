"""SQLite files: the history of calls with their scores, and the spool of calls not yet scored."""
