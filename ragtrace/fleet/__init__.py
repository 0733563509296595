"""Calls that wait elsewhere: the spool in a file, and the queue at a broker with its publishers and its workers."""
