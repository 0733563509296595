"""Providers, export queues, outboxes and their reset after a fork."""
