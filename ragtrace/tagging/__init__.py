"""Tags of calls (tenant, channel, version of the prompt): on metrics, in estimates, and from OpenTelemetry baggage."""
