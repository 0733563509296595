"""One file a telemetry convention: a step or the scores of a call as span attributes."""
