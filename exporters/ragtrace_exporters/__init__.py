"""Where telemetry can go, one module a destination, found through the entry-point group `ragtrace.exporters`.

An entry point is a callable that takes the environment, a `Mapping[str, str]`, and returns `ragtrace.model.Signals`. It
raises `ragtrace.errors.SettingsError` for a bad value and imports its exporter only when called.
"""
