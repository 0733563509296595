"""Daemon threads, event loops, forks, exit handlers and SQLite files, with the traps of Python and the OS."""
