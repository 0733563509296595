"""JSON documents of any contents, with the names of OTLP's fields."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.span_files import SPAN, TRACE

_NAMES = """
    resourceSpans scopeSpans spans scope attributes key value values events status arrayValue kvlistValue intValue
    doubleValue boolValue bytesValue context data traceId spanId parentSpanId startTimeUnixNano endTimeUnixNano flags
    trace_id span_id start_time end_time
""".split()
JSON_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES), inner | st.sampled_from([TRACE, SPAN, "1544712660000000000"]), max_size=6
        )
    ),
    max_leaves=30,
)
