"""Export of telemetry: OpenTelemetry providers, bounded queues before the backends, and their reset after a fork."""
