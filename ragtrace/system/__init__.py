"""Helpers for threads, event loops, forks, exit handlers and SQLite files."""
