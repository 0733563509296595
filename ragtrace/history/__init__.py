"""Calls and scores in SQLite files: the history, and the spool of calls not yet scored."""
