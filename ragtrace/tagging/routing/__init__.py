"""Routing of telemetry: whole calls to the exporter of their tag's value."""
