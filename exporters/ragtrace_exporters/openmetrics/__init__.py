"""Metrics of all processes of an application as one OpenMetrics page with exemplars, for Prometheus."""
