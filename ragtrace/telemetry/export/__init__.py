"""Export of telemetry: OpenTelemetry providers, and bounded queues before the backends."""
