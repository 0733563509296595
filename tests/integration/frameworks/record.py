"""Record what one application does under one instrumentation: `record.py APPLICATION INSTRUMENTATION MODE FOLDER`.

It runs in an environment with the application's framework and the instrumentation, without ragtrace.

`record.py` without arguments records what each line of its standard input asks for: these four in a JSON list.

Files in FOLDER, whose names begin with `APPLICATION-INSTRUMENTATION-MODE`:
    `.spans.jsonl.gz`: the spans in the order in which they ended, one a line, in OTLP JSON as the Collector's file
        exporter writes it, compressed by gzip.
    `.logs.jsonl.gz`: the log records, if there are any, in the same form.
    `.calls.json`: what the application knows of each request, and what the model server answered meanwhile.
"""

from __future__ import annotations

import base64
import gc
import gzip
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from corpus import DOCUMENTS
from environment import FOLDER, framework_of
from google.protobuf.json_format import MessageToDict
from instrumentations import import_instrumentors, instrument, span_limits
from model_server import Exchange, ModelServer
from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

_ID_FIELDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})


class _SeededIds(IdGenerator):
    """Generator of the same ids in every run, so that a new recording differs from the old one only where it must."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def generate_span_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._random.getrandbits(128) or 1


class CallLog:
    """List of the requests that an application logged, each with what the model server answered since the last one."""

    def __init__(self, server: ModelServer) -> None:
        self._exchanges = server.exchanges
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self,
        *,
        query: str,
        contexts: Sequence[str],
        answer: str,
        session: str,
        user: str,
        overlapping: bool = False,
        response_ids: Sequence[str] = (),
    ) -> None:
        exchanges = self._take(response_ids) if response_ids else self._exchanges_of(answer, overlapping)
        self.calls.append(
            {
                "query": query,
                "contexts": list(contexts),
                "answer": answer,
                "session": session,
                "user": user,
                "input_tokens": sum(exchange.input_tokens for exchange in exchanges),
                "output_tokens": sum(exchange.output_tokens for exchange in exchanges),
                "response_ids": [exchange.id for exchange in exchanges],
                "exchanges": [asdict(exchange) for exchange in exchanges],
            }
        )

    def _take(self, response_ids: Sequence[str]) -> list[Exchange]:
        """Remove and return the exchanges with *response_ids*, which an application knows where calls overlap."""
        taken = [exchange for exchange in self._exchanges if exchange.id in response_ids]
        self._exchanges[:] = [exchange for exchange in self._exchanges if exchange.id not in response_ids]
        return taken

    def _exchanges_of(self, answer: str, overlapping: bool) -> list[Exchange]:
        """Remove and return the exchanges behind *answer*: all since the last call, or only the one that wrote it."""
        if overlapping:
            taken = [next(exchange for exchange in self._exchanges if exchange.content == answer)]
            self._exchanges.remove(taken[0])
        else:
            taken = self._exchanges.copy()
            self._exchanges.clear()
        return taken


def otlp_json(message: Any) -> dict[str, Any]:
    """Return a protobuf *message* of OTLP as OTLP JSON, in which ids are hexadecimal."""
    encoded: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    _write_ids_as_hex(encoded)
    return encoded


def _write_ids_as_hex(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _write_ids_as_hex(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in _ID_FIELDS and isinstance(item, str):
                value[name] = base64.b64decode(item).hex()
            else:
                _write_ids_as_hex(item)


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.unlink(missing_ok=True)
    if lines:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        for folder, name in ((sys.prefix, "/venv"), (str(FOLDER), "/app"), (str(Path.home()), "/home/user")):
            text = text.replace(folder, name)  # as in tracebacks: fixtures do not name the machine
        path.write_bytes(gzip.compress(text.encode(), mtime=0))  # without a time: equal recordings are equal files


def record(application: str, instrumentation: str, mode: str, destination: str) -> None:
    """Run *application* in *mode* and write its recording into the folder *destination*."""
    folder = Path(destination)
    resource = Resource({"service.name": application})  # small, as every line repeats it
    spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
    ids = _SeededIds(f"{application} {instrumentation} {mode}")
    tracer_provider = TracerProvider(resource=resource, id_generator=ids, span_limits=span_limits(instrumentation))
    tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracer_provider)
    logger_provider = LoggerProvider(resource=resource)
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
    set_logger_provider(logger_provider)
    with ModelServer([document.text for document in DOCUMENTS]) as server:
        os.environ.update(OPENAI_BASE_URL=server.url, OPENAI_API_BASE=server.url, OPENAI_API_KEY="none")
        instrument(instrumentation, framework_of(application), tracer_provider, logger_provider)
        log = CallLog(server)
        import_module(f"applications.{application}").run(mode, log)
    tracer_provider.force_flush()
    ended: Sequence[ReadableSpan] = spans.get_finished_spans()
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{application}-{instrumentation}-{mode}"
    _write_lines(folder / f"{stem}.spans.jsonl.gz", [otlp_json(encode_spans([span])) for span in ended])
    _write_lines(folder / f"{stem}.logs.jsonl.gz", [otlp_json(encode_logs([log])) for log in logs.get_finished_logs()])
    text = json.dumps({"calls": log.calls}, ensure_ascii=False, indent=1)
    (folder / f"{stem}.calls.json").write_text(f"{text}\n", encoding="utf-8")


def serve(run: Callable[..., None]) -> None:
    """Call *run* with the arguments in each line of standard input, a JSON list whose first item is an application.

    Each call has a process of its own, forked from this one, which has imported the application's framework. The answer
    to a line is a line of JSON on standard output: a list of the exit status of that process and what it wrote.
    """
    for line in sys.stdin:
        arguments = json.loads(line)
        _import_framework(arguments[0], framework_of(arguments[0]))
        with TemporaryFile("w+", encoding="utf-8") as output:
            child = os.fork()
            if child == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os._exit(_exit_status(run, arguments))
            _, status = os.waitpid(child, 0)
            output.seek(0)
            sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(status), output.read()]) + "\n")
            sys.stdout.flush()


def _import_framework(application: str, framework: str) -> None:
    """Import what *application* imports, but not *application*, whose names have to be those of the instrumentation."""
    with suppress(Exception):  # the forked process raises and reports it
        import_module("openai.resources")  # hundreds of modules, which its client imports on use
    import_instrumentors("openai")
    if framework == "haystack":  # at its import, it reads the variables that `instrument` sets
        for module in ("networkx", "numpy", "posthog"):  # most of what it imports
            import_module(module)
    else:
        with suppress(Exception):
            import_module(f"applications.{application}")
            if framework == "llama_index":
                import_module("llama_index.core.utils").get_tokenizer()  # from a file of 100,000 tokens
        import_instrumentors(framework)
    for name in [name for name in sys.modules if name.startswith("applications.")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # else a collection in a forked process looks through all modules, whose memory it copies by that


def _exit_status(run: Callable[..., None], arguments: Sequence[str]) -> int:
    """Call *run* and return 0; write an error to standard error and return 1."""
    try:
        run(*arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve(record)
    else:
        record(*sys.argv[1:])
