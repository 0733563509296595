"""Spans and scores of calls as OpenTelemetry signals, and their export."""
