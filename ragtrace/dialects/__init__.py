"""One file a telemetry convention: a step or a score as span attributes."""
