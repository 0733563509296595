"""Finds the answer, the model and the token counts in what a generation function returned."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ragtrace.capture import field_names
from ragtrace.capture.documents import MAX_DOCUMENTS, find_documents
from ragtrace.capture.fields import (
    MAX_DEPTH,
    Get,
    SearchBudget,
    content_of,
    entries_of,
    first,
    first_item,
    getter,
    is_late,
    is_list,
    items_of,
    label_of,
    last_message,
    number_of,
    parts_text,
    role_of,
    shape_of,
    text_of,
    unwrap_proxies,
    values_of,
    whole_of,
)
from ragtrace.capture.plain_json import is_too_large, parse_json
from ragtrace.capture.providers import provider_of
from ragtrace.capture.references import is_address, is_id, is_reference
from ragtrace.core.previews import breaks_off
from ragtrace.core.types import Document, documents_from
from ragtrace.system.faults import faults

_MAX_BYTES: Final = 1_000_000
_MAX_SPACE: Final = 1_000
_FENCE: Final = "```"
_FEW_WORDS: Final = 2
"""Most words of a name, a title or a label, which is no sentence."""
_BESIDE_ANSWER: Final = frozenset({*field_names.SEVERAL, *field_names.METADATA, *field_names.ID, "citations", "usage"})
"""Fields beside an answer that are no part of it: what it rests on, and what it cost."""
_MAX_OUTPUT_ITEMS: Final = 1_000
_MAX_COMPONENTS: Final = 20
MAX_CHOICES: Final = 128
"""Largest number of choices, and of tool calls, that are read from one answer."""
_SPOKEN: Final = field_names.ASSISTANT | {"TextMessage"}
"""Roles of messages that may be an answer, and the type of AutoGen's, which have a source and no role."""
_LOCAL_IDS: Final = ("run-", "lc_run-", "run--")
"""Prefixes of the ids that LangChain makes up where the provider gave none."""
_ENVELOPE: Final = tuple(name for name in field_names.ANSWER if name != "message")


@dataclass(slots=True)
class Answer:
    """Answer of one generation, with the model, token counts and finish reasons that the provider reported.

    Of several models and ids that are found the first counts, of several token counts the last.
    """

    text: str | None = None
    """Text of the answer; None if the answer has no words (only tool calls) or is a stream that is still to be read."""
    model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    documents: tuple[Document, ...] | None = None
    """Documents that came with the answer; None if there were none, or `previews`."""
    previews: tuple[Document, ...] | None = None
    """Documents that came with the answer, of which some break off with an ellipsis and may be previews; else None."""
    tool_calls: int = 0
    provider: str | None = None
    """Provider of the model, a value of `gen_ai.provider.name`; None if the value does not show the provider."""
    cut_chars: int = 0
    """Number of characters at the end of a stream that were not kept."""
    budget: SearchBudget = field(default_factory=SearchBudget, compare=False, repr=False)


_ENDS_WITHOUT_TEXT: Final = frozenset(
    "content_filter content_filtered guardrail_intervened length max_tokens model_context_window_exceeded refusal"
    " safety recitation blocklist prohibited_content spii".split()
)
"""Reasons for which replies of providers end before their first word, in small letters."""
_CALLS: Final = ("function_call", "functionCall", "toolUse")
"""Fields of the parts, without a type, in which Gemini and Amazon Bedrock call a function."""
_UNTYPED_PARTS: Final = ("reasoningContent", "toolUse", "citationsContent")
"""Fields of the parts of a message of Amazon Bedrock, which have no type; a part has one of them, or a text."""


def find_answer(value: object) -> Answer | None:
    """Return the answer found in *value*, the result of a generation function. Never raises.

    Args:
        value: a string; a record with an answer field; a message or completion of OpenAI, LangChain, LlamaIndex,
            Haystack and others that name their fields alike; (answer, documents); the results of a pipeline.

    Returns:
        None if there is no answer in it: documents, HTTP responses and streams are none.
    """
    try:
        answer = Answer()
        if read_answer(unwrap_proxies(value), answer, 0):
            return answer
        # A provider's reply that says why it has no text is known to have none.
        is_reply = answer.model is not None or answer.input_tokens is not None
        is_empty = is_reply and any(reason.lower() in _ENDS_WITHOUT_TEXT for reason in answer.finish_reasons)
        answer.text = "" if is_empty else None
        return answer if is_empty else None
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.answer", error)
        return None


def read_answer(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from *value*, a result of any form, and return whether there is one."""
    answer.budget.left -= 1
    if depth > MAX_DEPTH or answer.budget.left < 0:
        return False
    text = text_of(value)
    if type(value) is bytes and len(value) <= _MAX_BYTES:
        with suppress(UnicodeDecodeError):  # bytes may be a picture or an archive
            text = value.decode("utf-8")
    if text is not None:
        answer.text = answer_in_json(text) if depth == 0 else text
        return True
    get = getter(value)
    if get is not None:
        return _read_record(value, get, answer, depth)
    if shape_of(type(value)).kind == "tuple":
        return _read_tuple(value, answer, depth)
    return _read_list(value, answer, depth)


def _read_record(value: object, get: Get, answer: Answer, depth: int) -> bool:
    answer.provider = answer.provider or provider_of(value) or None
    if is_passage(value, get):
        return False
    choices = items_of(get("choices"), MAX_CHOICES)
    if choices:
        read_facts(get, answer)
        return read_choices(choices, answer)
    if candidates := candidates_of(get):
        read_facts(get, answer)
        answer.text = read_candidates(candidates, answer)
        return answer.text is not None or answer.tool_calls > 0
    if read_response(get, answer):
        return True
    for generation in items_of(get("generations"), 1) or ():  # LangChain: an item for each prompt, or a list of items
        if (facts := getter(get("llm_output"))) is not None:
            _read_own_facts(facts, answer)
        inner = items_of(generation, 1)
        first_one = inner[0] if inner else generation
        look = getter(first_one)
        message = None if look is None else look("message")  # beside the text, with token counts
        return read_answer(first_one if message is None else message, answer, depth + 1)
    understood = _read_fields(get, answer, depth)
    if answer.text == "" and is_late(value):
        answer.text = None  # the application reads the text later
    return understood or _read_components(value, answer, depth)


def answer_in_json(text: str) -> str:
    """Return the answer in *text* if that is a JSON object with one, else *text* itself. Never raises.

    It is in a field with a well-known name, or in the only one that holds a sentence, if the others hold no more than
    labels, shares and sources: of a number beside it, the sentence alone would be a part of the answer. Models write
    such JSON in a fence of Markdown, too.
    """
    begins = text[:_MAX_SPACE].lstrip()[:3]
    if begins[:1] != "{" and begins != _FENCE:
        return text
    parsed: object = parse_json(text if begins != _FENCE else _in_fence(text))
    get = getter(parsed)
    if get is None or is_failure(get):
        return text
    found = find_answer(parsed)
    if found is not None and found.text:
        return found.text
    sentences: list[str] = []
    for name, value in entries_of(parsed, MAX_CHOICES):
        said = text_of(value)
        if said is not None and len(said.split(None, _FEW_WORDS)) > _FEW_WORDS:
            sentences.append(said)
        elif name not in _BESIDE_ANSWER and not _is_label(value):
            return text
    return sentences[0] if len(sentences) == 1 else text


def _in_fence(text: str) -> str:
    """Return what is in the code fence of JSON that *text* consists of; "" if it does not."""
    stripped = "" if is_too_large(text) else text.strip()
    kind, _, inside = stripped.removeprefix(_FENCE).removesuffix(_FENCE).partition("\n")
    is_fence = stripped.endswith(_FENCE) and kind.strip().lower() in ("", "json") and _FENCE not in inside
    return inside if is_fence else ""


def _is_label(value: object) -> bool:
    """Return whether *value*, in JSON, says nothing of its own beside a sentence: a name, a share, a truth value."""
    number = number_of(value)
    if number is not None:
        return 0 <= number <= 1
    said = text_of(value)
    return not value or value is True or (said is not None and not any(map(str.isdigit, said)))


def is_passage(value: object, get: Get) -> bool:
    """Return whether *value* is a piece of a document, and not an object of the application that has an answer."""
    if shape_of(type(value)).is_passage:
        return all(get(name) is None for name in field_names.ONLY_ANSWER)
    return get("page_content") is not None


def read_choices(choices: list[object], answer: Answer) -> bool:
    """Read the answer from the first of the choices in an OpenAI completion, of the chat or the text API."""
    getters = [get for choice in choices if (get := getter(choice)) is not None]
    reasons = (label_of(get("finish_reason")) for get in getters)
    answer.finish_reasons = tuple(reason for reason in reasons if reason is not None)
    if not getters:
        return False
    message = getter(getters[0]("message"))
    if message is None:
        answer.text = text_of(getters[0]("text"))
        return answer.text is not None
    calls = items_of(message("tool_calls"), MAX_CHOICES) or ()
    answer.tool_calls += len(calls) or int(message("function_call") is not None)
    text = content_of(message, "")
    text = text or refusal_in(message) or text
    answer.text = None if text == "" and answer.tool_calls else text  # an answer of tool calls alone has no text
    return answer.text is not None or answer.tool_calls > 0


def refusal_in(get: Get) -> str | None:
    """Return what a model of OpenAI says in a message, or a piece of one, in place of an answer; None: nothing."""
    said = text_of(get(field_names.REFUSAL))
    if said is None and (others := getter(get("additional_kwargs"))) is not None:  # of LangChain
        said = text_of(others(field_names.REFUSAL))
    return said or None


def candidates_of(get: Get) -> list[Get]:
    """Return the candidates of a reply of Gemini, or of a chunk of one, if the record is one and has any parts."""
    found = _records(get("candidates"))
    contents = (getter(look("content")) for look in found)
    has_parts = any(content is not None and items_of(content("parts"), 1) is not None for content in contents)
    return found if has_parts else []


def read_candidates(candidates: list[Get], answer: Answer) -> str | None:
    """Read the tool calls of the first of Gemini's *candidates*, and return its text, of which thoughts are no part."""
    content = next((getter(get("content")) for get in candidates if not whole_of(get("index"))), None)
    parts = None if content is None else content("parts")
    answer.tool_calls += _calls_among(parts)
    return parts_text(parts, "")


def _records(value: object) -> list[Get]:
    """Return the functions that read the fields of the records in a list."""
    return [get for each in items_of(value, MAX_CHOICES) or () if (get := getter(each)) is not None]


def _calls_among(parts: object) -> int:
    """Return how many of the *parts* of a message call a function: of Anthropic, Amazon Bedrock and Gemini."""
    return sum(
        label_of(get("type")) == "tool_use" or any(getter(get(name)) is not None for name in _CALLS)
        for get in _records(parts)
    )


def read_response(get: Get, answer: Answer) -> bool:
    """Read the answer from a response of OpenAI's Responses API: its messages, function calls and status."""
    read_facts(get, answer)
    output = items_of(get("output"), _MAX_OUTPUT_ITEMS)
    if not output:
        return False
    texts: list[str] = []
    calls = 0
    for item in output:
        look = getter(item)
        kind = None if look is None else label_of(look("type"))
        if look is None or kind is None:
            continue
        if kind == "message":
            parts = (getter(part) for part in items_of(look("content"), _MAX_OUTPUT_ITEMS) or ())
            found = (first(part, ("text", "refusal"), text_of) for part in parts if part is not None)
            texts += [text for text in found if text is not None]
        calls += kind.endswith("_call")
    answer.text = "".join(texts) if texts else None
    answer.tool_calls = calls
    details = getter(get("incomplete_details"))
    reason = label_of(get("status")) if details is None else label_of(details("reason"))
    if reason is not None:
        answer.finish_reasons = (reason,)
    return bool(texts) or calls > 0


def _read_fields(get: Get, answer: Answer, depth: int) -> bool:
    """Read the answer from a dict or an object that holds one in a field with a well-known name.

    The documents beside the answer are read, too.
    """
    answer.tool_calls += len(items_of(get("tool_calls"), MAX_CHOICES) or ())
    if (blocks := get("blocks")) is not None:  # a message of LlamaIndex
        getters = map(getter, items_of(blocks, MAX_CHOICES) or ())
        answer.tool_calls += sum(block is not None and block("block_type") == "tool_call" for block in getters)
    if is_failure(get):
        return False
    understood = any(_read_field(get(name), name, answer, depth) for name in _answer_names(get))
    if not answer.text and (refusal := refusal_in(get)) is not None:
        answer.text, understood = refusal, True
    if answer.text == "" and answer.tool_calls:
        answer.text = None
    # LlamaIndex's streaming response already has its documents, but not yet its text.
    understood = understood or answer.tool_calls > 0 or get("response_gen") is not None
    if understood and answer.documents is None:
        read_documents(get, answer)
    return understood


def is_failure(get: Get) -> bool:
    """Return whether a record says that there is no answer: an `error` that is neither empty, false nor zero."""
    error = get("error")
    return error is True or bool(text_of(error)) or bool(number_of(error)) or getter(error) is not None


def says_no_answer(value: object) -> bool:
    """Return whether a returned record says that there is no answer: with an error, or as None under a name for it."""
    get = getter(value)
    if get is None:
        return False
    fields: Any = value
    has_none = type(fields) is dict and any(name in fields and fields[name] is None for name in field_names.ONLY_ANSWER)
    return has_none or is_failure(get)


def _answer_names(get: Get) -> tuple[str, ...]:
    """Return the names of the fields that may hold the answer.

    In an envelope such as `{"status": "ok", "message": "Success", "data": {"answer": ...}}` the message is the status.
    """
    if get("tasks_output") is not None:
        return ("raw",)  # of CrewAI
    is_envelope = getter(get("data")) is not None or getter(get("result")) is not None
    return _ENVELOPE if is_envelope and text_of(get("message")) is not None else field_names.ANSWER


def _read_field(found: object, name: str, answer: Answer, depth: int) -> bool:
    if found is None:
        return False
    if name in field_names.ALTERNATIVES:
        found = first_item(found)
    if name == "data" and getter(found) is None:  # Haystack's GeneratedAnswer; otherwise the field can hold anything
        answer.text = text_of(found)
        return answer.text is not None
    return read_answer(found, answer, depth + 1)


def read_documents(get: Get, answer: Answer) -> bool:
    """Read the documents that a dict or an object holds besides an answer, and return whether it holds any.

    Whole documents count before previews, and these before an empty list.
    """
    for name in field_names.ANSWER_DOCUMENTS:
        found = get(name)
        if found is not None:
            _read_passages(found, answer, are_titles=name in field_names.REFERENCES)
        if answer.documents:
            return True
    if answer.previews is not None:
        answer.documents = None
    return answer.documents is not None or answer.previews is not None


def _read_passages(value: object, answer: Answer, *, are_titles: bool = False) -> bool:
    """Read the documents in *value*, which came with an answer, and return whether there are any that are no previews.

    What only names documents is left out: addresses and names of files, wherever they stand; ids in a list of strings;
    and where nothing else is in that list, or *are_titles*, its other words, too. Then the documents of the retrieval
    count. Words in records are texts, however short.

    A text that breaks off may be a preview of a document that was retrieved, and is so only known when the call is
    built: all documents beside it are previews until then.
    """
    items = [value] if text_of(value) is not None else items_of(value, MAX_DOCUMENTS + 1) or []
    strings = [text for item in items if (text := text_of(item)) is not None]
    if strings and len(strings) == len(items) and (are_titles or all(map(is_reference, strings))):
        return False
    found = find_documents(value, answer.budget)
    # Whether texts beside empty lists are queries or passages is not known here.
    if found is None or (not found and any(items_of(item, 1) for item in items)):
        return False
    ids = _ids_among(items)
    if are_titles:
        ids.update(strings)
    kept = [each for each in found if each.text not in ids and not is_address(each.text)]
    if len(kept) < len(found) and not any(each.text.strip() for each in kept):
        return False
    if any(breaks_off(each.text) for each in kept):
        answer.previews = answer.previews or documents_from(kept, found)
        return False
    answer.documents = found if len(kept) == len(found) else documents_from(kept, found)
    return True


def _ids_among(items: list[object]) -> set[str]:
    """Return the strings among *items*, in pairs with a score or in fields that may name a document, that are ids."""
    said: list[object] = []
    for item in items:
        get = getter(item)
        if get is not None:
            said += [get(name) for name in field_names.NAMING]
        else:
            said += items_of(item, MAX_CHOICES) or [item]
    return {text for each in said if (text := text_of(each)) is not None and is_id(text)}


def _read_components(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from the results of a pipeline's components. The last component with an answer counts."""
    understood = False
    for component in values_of(value, _MAX_COMPONENTS):
        get = getter(component) if shape_of(type(component)).kind == "dict" else None
        if get is None:
            continue
        names = field_names.INNER_ANSWER
        understood = any(_read_field(get(name), name, answer, depth + 1) for name in names) or understood
        if answer.documents is None:
            read_documents(get, answer)
    return understood


def _read_list(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from a list of messages, of message parts, or of the results of a pipeline component.

    A list of documents is never an answer.
    """
    message = last_message(value, _SPOKEN)
    if message is not None:
        look = getter(message)
        if look is not None and not is_spoken(look):  # AutoGen's question, after which no text came
            return False
        return read_answer(message, answer, depth + 1)
    item = first_item(value)
    get = getter(item)
    is_part = get is not None and get("type") is not None
    if depth > 0 and not is_part:
        is_part = text_of(item if get is None else get("text")) is not None
        is_part = is_part or (get is not None and any(getter(get(name)) is not None for name in _UNTYPED_PARTS))
    if is_part:
        answer.text = parts_text(value, "")
        answer.tool_calls = answer.tool_calls or _calls_among(value)  # LangChain tells of them beside the parts, too
        return answer.text is not None or answer.tool_calls > 0
    return depth > 0 and item is not None and read_answer(item, answer, depth + 1)


def is_spoken(get: Get) -> bool:
    """Return whether a message is the assistant's."""
    return role_of(get) in _SPOKEN and get("source") != "user"


def _read_tuple(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from a tuple with exactly one item that is an answer, such as (answer, documents)."""
    items = items_of(value, 8) or []
    rest = [item for item in items if item is not None and number_of(item) is None and not is_list(item)]
    if len(rest) != 1 or not read_answer(rest[0], answer, depth + 1):
        return False
    if not answer.documents:
        any(_read_passages(item, answer) for item in items if is_list(item) and item)
    return True


# --- What the provider said about a generation ------------------------------------------------------------------------


def read_facts(get: Get, answer: Answer) -> None:
    """Read the model name, id, finish reason and token counts of a provider's reply into *answer*."""
    _read_own_facts(get, answer)
    for name in field_names.FACTS:
        found = get(name)
        inner = None if found is None else getter(found)
        if inner is not None:
            _read_own_facts(inner, answer)
    # A record without model or tokens may be the application's own, and so may be its id.
    if answer.response_id is None and (answer.model is not None or answer.input_tokens is not None):
        identifier = first(get, field_names.RESPONSE_ID, label_of)
        if identifier is not None and not identifier.startswith(_LOCAL_IDS):
            answer.response_id = identifier


def _read_own_facts(get: Get, answer: Answer) -> None:
    if answer.model is None:
        answer.model = first(get, field_names.MODEL, label_of)
    if not answer.finish_reasons:
        givers = (get, *_records(get("candidates")))  # of Gemini, each candidate has its own
        reasons = (first(giver, field_names.FINISH, _reason_of) for giver in givers)
        answer.finish_reasons = tuple(reason for reason in reasons if reason is not None)
    for name in field_names.USAGE:
        read_usage(get(name), answer)
    counts = (get("prompt_eval_count"), get("eval_count"))  # of a prompt that its cache has had, Ollama gives none
    if answer.input_tokens is None and any(whole_of(count) is not None for count in counts):
        _read_counts(get, answer)  # of Ollama, whose reply has them itself


def _reason_of(value: object) -> str | None:
    """Return a finish reason in words: the numbers of an enumeration say nothing."""
    return None if number_of(value) is not None else label_of(value)


def read_usage(usage: object, answer: Answer) -> None:
    """Read the token counts in a provider's *usage* record into *answer*.

    The last of several records in a stream counts.
    """
    get = None if usage is None else getter(usage)
    if get is not None:
        _read_counts(get, answer)


def _read_counts(get: Get, answer: Answer) -> None:
    given = _counted(get, field_names.INPUT_TOKENS)
    if given is None and (inner := getter(get("tokens"))) is not None:  # of Cohere, beside what is billed
        get = inner
        given = _counted(get, field_names.INPUT_TOKENS)
    made = _counted(get, field_names.OUTPUT_TOKENS)
    total = first(get, field_names.TOTAL_TOKENS, _count_of)
    # A total that the two make up shows that the others are within them, as cached tokens are of some models.
    is_all = given is not None and made is not None and total == given[1] + made[1]
    answer.input_tokens = answer.input_tokens if given is None else _with_those_apart(get, *given, is_all=is_all)
    answer.output_tokens = answer.output_tokens if made is None else _with_those_apart(get, *made, is_all=is_all)


def _counted(get: Get, names: tuple[str, ...]) -> tuple[str, int] | None:
    """Return name and value of the first number of tokens among the fields *names*."""
    return next(((name, count) for name in names if (count := _count_of(get(name))) is not None), None)


def _with_those_apart(get: Get, name: str, count: int, *, is_all: bool) -> int:
    """Return the number *count* of tokens, from the field *name*, with those that the provider counts beside it.

    LiteLLM has Anthropic's names beside a sum that includes them.
    """
    if is_all or (name == "input_tokens" and get("prompt_tokens") is not None):
        return count
    return count + sum(_count_of(get(other)) or 0 for other in field_names.APART.get(name, ()))


def _count_of(value: object) -> int | None:
    """Return a number of tokens, which Cohere gives as a float."""
    number = number_of(value)
    if number is None or not 0 <= number <= sys.maxsize or number != int(number):
        return None
    return int(number)
