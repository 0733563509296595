"""What goes to a model and comes back: a question, an answer, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragtrace.core.cost import Cost
from ragtrace.core.price import Price
from ragtrace.judges.llm.completions import TokenChoice

Check = Callable[[dict[str, Any]], list[str]]
"""Lists the defects of a reply; none: it is good."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a model.

    Args:
        system: all instructions.
        user: the data, which is never instruction.
        name: of the schema: letters, digits, underscores.
        schema: JSON schema of the reply; an object with every key required and none besides, as strict mode asks for.
        max_tokens: most tokens of the reply; None: as the `Chat` says, else *ample_tokens*.
        ample_tokens: more tokens than an honest reply has: the limit where nobody sets one, so that a small model that
            repeats itself does not run until the timeout. A model that spends them on reasoning is asked without it.
        logprobs: whether the log probabilities of its tokens are wanted.
        temperature: 0 for the likeliest reply; left out for models that reject it.
        samples: replies wanted.
    """

    system: str
    user: str
    name: str
    schema: Mapping[str, object]
    max_tokens: int | None = None
    ample_tokens: int | None = None
    logprobs: bool = False
    temperature: float = 0.0
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model replied."""

    data: dict[str, Any]
    """The last reply that could be read; it may have defects that a repair did not mend."""
    text: str
    """What it was read from, as the model wrote it."""
    rung: int
    """Of the ladder, 1 to 3."""
    model: str
    """As the server calls it."""
    spent: Cost
    tokens: tuple[TokenChoice, ...] | None = None
    """The tokens of `text`, where they were wanted and the server gives them."""
    samples: tuple[dict[str, Any], ...] = ()
    """All replies without defects, `data` among them if it has none."""
    defects: tuple[str, ...] = ()
    """What is still wrong with `data`."""
    input_truncated: bool = False
    """The server counted far fewer tokens of a request than its text has: it seems to have read only a part."""


@dataclass(slots=True)
class Tally:
    """What a question has cost so far."""

    price: Price | None
    spent: Cost = field(default_factory=Cost)
    model: str = ""
    input_truncated: bool = False
