"""Tracer providers, export queues, their reset after a fork, and native score sinks."""
