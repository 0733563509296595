"""Where Python and the operating system bite: daemon threads, event loops, forks, exit hooks, SQLite files."""
