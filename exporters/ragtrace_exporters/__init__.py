"""Exporters: one module for each destination of telemetry, listed by name in `ragtrace.system.installation`.

Other distributions add theirs through the entry-point group `ragtrace.exporters`. An exporter is a callable that takes
the environment, a `Mapping[str, str]`, and returns `ragtrace.core.types.Signals`. It raises
`ragtrace.core.errors.SettingsError` for a bad value and imports its exporter only when called. It, or its module, may
have `endpoints(environ)`, by which `ragtrace doctor` finds out where each signal goes.

`otlp` and `console` are for any backend and for none; the others are presets (`preset` is what they share), and those
whose backend does not read scores from OTLP add a `ragtrace.core.score_sink.ScoreSink` (`sinks`). PYTEST_DONT_REWRITE
"""
