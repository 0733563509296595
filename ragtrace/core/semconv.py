"""Names of all spans, attributes, events and metrics that ragtrace writes or reads.

Names under `gen_ai.` follow the OpenTelemetry GenAI semantic conventions (repository semantic-conventions-genai, status
Development: they may be renamed, which is why no other module spells one). Only `error.type` is stable. Names under
`openinference.`, `input.`, `output.`, `retrieval.`, `reranker.`, `llm.`, `session.`, `user.`, `evaluations.` follow the
OpenInference specification. Names under `ragtrace.` are ours: the naming guide of OpenTelemetry tells applications not
to add attributes to an existing namespace.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "ragtrace"
"""Instrumentation scope of all spans, events and metrics that ragtrace writes."""

# --- Stable (OpenTelemetry semantic conventions) -------------------------------------------------------------------
ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

# --- Development (OpenTelemetry GenAI) ------------------------------------------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
OPERATION_WORKFLOW: Final = "invoke_workflow"
OPERATION_RETRIEVAL: Final = "retrieval"
OPERATION_CHAT: Final = "chat"
OPERATION_EVALUATION: Final = "evaluation"  # a custom value, as the convention has none for evaluations
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
PROVIDER_NAME: Final = "gen_ai.provider.name"
PROVIDER_UNKNOWN: Final = "unknown"
"""Provider of an inference where no source names the provider. The attribute is required, and the conventions permit
a custom value where none of theirs applies; OpenTelemetry's instrumentation of LangChain uses this one."""
RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOKEN_INPUT: Final = "input"
TOKEN_OUTPUT: Final = "output"
TOKEN_MODALITY: Final = "gen_ai.token.modality"
MODALITY_UNKNOWN: Final = "unknown"
"""Value of `TOKEN_MODALITY` where the provider does not report how many tokens were text, image or audio."""

EVENT_EVALUATION: Final = "gen_ai.evaluation.result"
"""Event for each score of a call, and for each reason why there is none."""
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

EVENT_DETAILS: Final = "gen_ai.client.inference.operation.details"
"""Event with the content of an inference (a chat span), where the content-capture mode allows events."""

METRIC_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
METRIC_TOKEN_USAGE: Final = "gen_ai.client.token.usage"
METRIC_TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
METRIC_WORKFLOW_DURATION: Final = "gen_ai.invoke_workflow.duration"
METRIC_INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
METRIC_INFERENCE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
METRIC_INPUT_TOKENS: Final = "gen_ai.client.inference.usage.input_tokens"
METRIC_OUTPUT_TOKENS: Final = "gen_ai.client.inference.usage.output_tokens"
METRIC_OPERATION_INPUT_TOKENS: Final = "gen_ai.client.inference.operation.input_tokens"
METRIC_OPERATION_OUTPUT_TOKENS: Final = "gen_ai.client.inference.operation.output_tokens"
"""Names of the metrics of inferences in the unreleased conventions. `OTEL_SEMCONV_STABILITY_OPT_IN` selects these, the
released ones (`gen_ai.client.operation.*`, `gen_ai.client.token.usage`) or both. Tokens have counters (`usage`) and
histograms of single inferences (`operation`). Retrievals stay under `gen_ai.client.operation.duration`."""

# --- OpenTelemetry GenAI, read from the spans of other instrumentations -----------------------------------------------
OPERATION_TEXT_COMPLETION: Final = "text_completion"
OPERATION_GENERATE_CONTENT: Final = "generate_content"
OPERATION_TOOL: Final = "execute_tool"
OPERATION_DECISION: Final = "decision"
"""Operation of the spans in which Strands Agents asks a decision model; the conventions have no name for it."""
OPERATION_AGENT: Final = "invoke_agent"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
REQUEST_CHOICES: Final = "gen_ai.request.choice.count"
PROMPT_VARIABLE: Final = "gen_ai.prompt.variable."
"""Prefix of the attributes with the variables of a prompt template."""
MCP_METHOD: Final = "mcp.method.name"
MCP_CALL_TOOL: Final = "tools/call"
ENDUSER_ID: Final = "enduser.id"
USER_ID: Final = "user.id"
# Names in older releases of the conventions, which some instrumentations still write.
OLD_SYSTEM: Final = "gen_ai.system"
OLD_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
OLD_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.completion_tokens"
OLD_PROMPT: Final = "gen_ai.prompt"
OLD_COMPLETION: Final = "gen_ai.completion"
OLD_EVENT_CONTENT: Final = "gen_ai.event.content"
OLD_MESSAGE_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""Role of the prompt message in a span event, by the name of the event."""
OLD_EVENT_CHOICE: Final = "gen_ai.choice"
OLD_EVENT_PROMPT: Final = "gen_ai.content.prompt"
OLD_EVENT_COMPLETION: Final = "gen_ai.content.completion"

# --- Pydantic AI, read from its spans ---------------------------------------------------------------------------------
PYDANTIC_SCOPES: Final = ("pydantic-ai", "logfire.pydantic_ai")
"""Instrumentation scopes of Pydantic AI's spans."""
PYDANTIC_MESSAGES: Final = "pydantic_ai.all_messages"
PYDANTIC_MESSAGE_EVENTS: Final = "all_messages_events"
PYDANTIC_EVENTS: Final = "events"
PYDANTIC_NEW_MESSAGES: Final = "pydantic_ai.new_message_index"
PYDANTIC_RESULT: Final = "final_result"
PYDANTIC_AGENT_NAME: Final = "agent_name"
PYDANTIC_MODEL_NAME: Final = "model_name"
PYDANTIC_TOOL_ARGUMENTS: Final = "tool_arguments"
PYDANTIC_TOOL_RESULT: Final = "tool_response"
PYDANTIC_TOOL_RETRY: Final = "pydantic_ai.tool.retry.cause"
PYDANTIC_TOOL_FAILURE: Final = "pydantic_ai.tool.failure_stage"
PYDANTIC_LOG_MESSAGE: Final = "logfire.msg"
PYDANTIC_INPUT_TOKENS: Final = "gen_ai.aggregated_usage.input_tokens"
PYDANTIC_OUTPUT_TOKENS: Final = "gen_ai.aggregated_usage.output_tokens"

# --- Haystack, read from the spans of its own tracer ------------------------------------------------------------------
HAYSTACK_PIPELINE_INPUT: Final = "haystack.pipeline.input_data"
HAYSTACK_PIPELINE_OUTPUT: Final = "haystack.pipeline.output_data"
HAYSTACK_COMPONENT_TYPE: Final = "haystack.component.type"
HAYSTACK_COMPONENT_NAME: Final = "haystack.component.name"
HAYSTACK_COMPONENT_INPUT: Final = "haystack.component.input"
HAYSTACK_COMPONENT_OUTPUT: Final = "haystack.component.output"
HAYSTACK_OUTPUT_SPEC: Final = "haystack.component.output_spec"
HAYSTACK_PIPELINE_METADATA: Final = "haystack.pipeline.metadata"
HAYSTACK_PIPELINE_SPANS: Final = ("haystack.pipeline.run", "haystack.async_pipeline.run")
HAYSTACK_AGENT_SPAN: Final = "haystack.agent.run"
HAYSTACK_AGENT_INPUT: Final = "haystack.agent.input"
HAYSTACK_AGENT_OUTPUT: Final = "haystack.agent.output"
HAYSTACK_LLM_SPAN: Final = "haystack.agent.step.llm"
HAYSTACK_LLM_INPUT: Final = "haystack.agent.step.llm.input"
HAYSTACK_LLM_OUTPUT: Final = "haystack.agent.step.llm.output"
HAYSTACK_TOOL_NAME: Final = "haystack.tool.name"
HAYSTACK_TOOL_ERROR: Final = "haystack.tool.error"
HAYSTACK_TOOL_INPUT: Final = "haystack.agent.step.tool.input"
HAYSTACK_TOOL_OUTPUT: Final = "haystack.agent.step.tool.output"
HAYSTACK_SPANS: Final = frozenset(
    ("haystack.component.run", *HAYSTACK_PIPELINE_SPANS, HAYSTACK_AGENT_SPAN, HAYSTACK_LLM_SPAN,
     "haystack.agent.step.tool")
)  # fmt: skip
"""Names of the Haystack spans that become steps of a RAG call."""

# --- OpenInference ---------------------------------------------------------------------------------------------------
OI_KIND: Final = "openinference.span.kind"
OI_CHAIN: Final = "CHAIN"
OI_RETRIEVER: Final = "RETRIEVER"
OI_RERANKER: Final = "RERANKER"
OI_LLM: Final = "LLM"
OI_EVALUATOR: Final = "EVALUATOR"
OI_INPUT: Final = "input.value"
OI_OUTPUT: Final = "output.value"
OI_SESSION: Final = "session.id"
OI_USER: Final = "user.id"
OI_MODEL: Final = "llm.model_name"
OI_TOKENS_PROMPT: Final = "llm.token_count.prompt"
OI_TOKENS_COMPLETION: Final = "llm.token_count.completion"
OI_TOKENS_TOTAL: Final = "llm.token_count.total"
OI_PROJECT: Final = "openinference.project.name"
"""Resource attribute with the project in which Phoenix shows a trace."""
oi_document: Final = "retrieval.documents.{}.document.{}".format
"""Return the attribute name of one part (id, score, content) of the document at a rank, from 0."""
OI_RERANKER_QUERY: Final = "reranker.query"
OI_RERANKER_MODEL: Final = "reranker.model_name"
OI_RERANKER_TOP_K: Final = "reranker.top_k"
oi_reranker_input: Final = "reranker.input_documents.{}.document.{}".format
"""Return the attribute name of one part (id, score, content) of the document that a re-ranker was given at a rank."""
oi_reranker_output: Final = "reranker.output_documents.{}.document.{}".format
"""Return the attribute name of one part (id, score, content) of the document that a re-ranker returned at a rank."""
oi_evaluation: Final = "evaluations.{}.evaluation.{}".format
"""Return the attribute name of one part (name, score, label, identifier ...) of the evaluation at an index."""

# Names read from the spans of OpenInference's instrumentations and never written.
oi_scope: Final = "openinference.instrumentation.{}".format
"""Return the instrumentation scope of the spans of OpenInference's instrumentation for a package."""
OI_AGENT: Final = "AGENT"
OI_TOOL: Final = "TOOL"
OI_DECISION: Final = "DECISION"
"""Kind of a span that asks a decision model, which describes no generation of an answer."""
OI_DECISION_MODEL: Final = "decision.model_name"
OI_DECISION_VENDOR: Final = "typesafe"
"""Provider that has decision models only; older spans of its calls have the kind of a model call."""
OI_INPUT_TYPE: Final = "input.mime_type"
OI_OUTPUT_TYPE: Final = "output.mime_type"
OI_METADATA: Final = "metadata"
"""Span attribute with the metadata of a run as a JSON object, where LangChain puts session and user."""
OI_TAGS: Final = "tag.tags"
"""Span attribute with the tags of a run, a list of texts."""
OI_AGENT_NAME: Final = "agent.name"
OI_TOOL_NAME: Final = "tool.name"
OI_DOCUMENTS: Final = "retrieval.documents"
OI_DOCUMENT_ID: Final = "document.id"
OI_DOCUMENT_SCORE: Final = "document.score"
OI_DOCUMENT_CONTENT: Final = "document.content"
OI_DOCUMENT_METADATA: Final = "document.metadata"
"""Last parts of attribute names for a document's fields, after the name and index of the document list."""
OI_RERANKER_INPUT: Final = "reranker.input_documents"
OI_RERANKER_OUTPUT: Final = "reranker.output_documents"
OI_INPUT_MESSAGES: Final = "llm.input_messages"
OI_OUTPUT_MESSAGES: Final = "llm.output_messages"
OI_MESSAGE_ROLE: Final = "message.role"
OI_MESSAGE_CONTENT: Final = "message.content"
OI_MESSAGE_CONTENTS: Final = "message.contents"
OI_MESSAGE_TOOL_CALLS: Final = "message.tool_calls"
OI_MESSAGE_FUNCTION: Final = "message.function_call_name"
"""Last parts of attribute names for a message's fields, after the name and index of the message list."""
OI_CONTENT_TYPE: Final = "message_content.type"
OI_CONTENT_TEXT: Final = "message_content.text"
OI_CALLED_FUNCTION: Final = "tool_call.function.name"
OI_CALL_ARGUMENTS: Final = "tool_call.function.arguments"
OI_PROMPTS: Final = "llm.prompts"
OI_PROMPT_TEXT: Final = "prompt.text"
OI_CHOICES: Final = "llm.choices"
OI_COMPLETION_TEXT: Final = "completion.text"
OI_PROMPT_TEMPLATE: Final = "llm.prompt_template.template"
OI_INVOCATION_PARAMETERS: Final = "llm.invocation_parameters"
OI_REQUEST_MODEL: Final = "llm.request.model_name"
OI_RESPONSE_MODEL: Final = "llm.response.model_name"
OI_PROVIDER: Final = "llm.provider"
OI_SYSTEM: Final = "llm.system"
OI_FINISH_REASON: Final = "llm.finish_reason"
OI_FIRST_TOKEN: Final = "First Token Stream Event"
"""Span event at the first piece of a streamed answer."""

# --- OpenLLMetry -----------------------------------------------------------------------------------------------------
TRACELOOP_KIND: Final = "traceloop.span.kind"
LLM_REQUEST_TYPE: Final = "llm.request.type"
TRACELOOP_WORKFLOW: Final = "traceloop.workflow.name"
TRACELOOP_NAME: Final = "traceloop.entity.name"
TRACELOOP_INPUT: Final = "traceloop.entity.input"
TRACELOOP_OUTPUT: Final = "traceloop.entity.output"
TRACELOOP_STREAMING: Final = "gen_ai.is_streaming"
TRACELOOP_USER: Final = "gen_ai.user"
traceloop_prompt: Final = "gen_ai.prompt.{}.{}".format
"""Return the attribute name of one field (role, content ...) of the message at an index, in older releases."""
traceloop_completion: Final = "gen_ai.completion.{}.{}".format
"""Return the attribute name of one field (role, content ...) of the model's message at an index, in older releases."""
traceloop_association: Final = "traceloop.association.properties.{}".format
"""Return the attribute name of a property, such as session_id, that the application or LangChain gave to a trace."""
OLD_STREAMING: Final = "llm.is_streaming"
OLD_LLM_USER: Final = "llm.user"
DB_SYSTEM: Final = "db.system"
DB_RESULT_EVENT: Final = "db.query.result"
DB_RESULT_ID: Final = "db.query.result.id"
DB_RESULT_SCORE: Final = "db.query.result.score"
DB_RESULT_METADATA: Final = "db.query.result.metadata"
DB_RESULT_DOCUMENT: Final = "db.query.result.document"
"""Names of the event for each result of a search in a vector database, and of the event's attributes."""
CHROMA_RESULTS: Final = "db.chroma.query.n_results"

# --- Of single backends ----------------------------------------------------------------------------------------------
LANGFUSE_ENVIRONMENT: Final = "langfuse.environment"
"""Resource attribute with the environment in which Langfuse shows a trace."""
LANGFUSE_TRACE_NAME: Final = "langfuse.trace.name"
LANGFUSE_TRACE_INPUT: Final = "langfuse.trace.input"
LANGFUSE_TRACE_OUTPUT: Final = "langfuse.trace.output"
"""Span attributes that Langfuse shows in its list of traces, from any span of the trace."""
LANGFUSE_TRACE_TAGS: Final = "langfuse.trace.tags"
"""Span attribute with the tags of a trace in Langfuse, a list of texts, or a JSON text of one."""
langfuse_metadata: Final = "langfuse.trace.metadata.{}".format
"""Return the attribute name of one entry of the metadata of a trace in Langfuse."""
WANDB_ENTITY: Final = "wandb.entity"
WANDB_PROJECT: Final = "wandb.project"
"""Resource attributes with the entity and the project in which W&B Weave stores a trace."""

# --- Ours ------------------------------------------------------------------------------------------------------------
DOCUMENT_COUNT: Final = "ragtrace.retrieval.document.count"
"""Number of documents on the span of a retrieval."""
DOCUMENTS_IN_PART: Final = "ragtrace.retrieval.in_part"
"""True on the span of a step that has more documents than ragtrace has read; else absent."""
RERANK: Final = "ragtrace.rerank"
"""Whether a retrieval orders documents it was given, on the span of each retrieval."""
QUERY: Final = "ragtrace.query"
"""Question of a generation, on a span whose last user message has a different text: a prompt with documents."""
CONTEXTS: Final = "ragtrace.contexts"
"""Documents on which the answer is based, on the root span of a call whose contexts no retrieval span shows. They have
the structure of `gen_ai.retrieval.documents`, which the conventions define for retrieval spans only."""
EVENT_STEP_DETAILS: Final = "ragtrace.operation.details"
"""Event with the content of a workflow or a retrieval, for which the conventions define no event."""
ABANDONED: Final = "ragtrace.abandoned"
"""Whether the reader of a stream left before its end, on the span of each streamed step."""
CUT_CHARS: Final = "ragtrace.cut_chars"
"""Number of characters that `Redact(max_chars=...)` cut off the content of the span; absent when nothing was cut."""
LIMITED_CHARS: Final = "ragtrace.limited_chars"
"""Number of characters that were left out of the JSON on the span, so that it fits the provider's length limit of
attributes; absent when it fits."""
REASONING_CHARS: Final = "ragtrace.reasoning_chars"
"""Number of characters at the beginning of the span's answer that are the reasoning of its model, which is not judged;
absent when there are none."""

CONTEXT_SOURCE: Final = "ragtrace.context_source"
"""Source of the contexts of a scored call: arguments, result, reranker, retriever, tool or prompt, or several of these
joined by a plus sign; absent where no contexts were captured."""
EVAL_STATUS: Final = "ragtrace.eval.status"
"""Status of the call over all of its evaluators, on the root span."""
EVAL_PROBABILITY: Final = "ragtrace.eval.probability"
"""Probability with which the call was chosen for the evaluator of `EVAL_EVALUATOR`."""
EVAL_EVALUATOR: Final = "ragtrace.eval.evaluator"
"""Id and version, as id@version, of the judge, or of the screen if no judge scored the call."""
EVAL_INJECTION_SUSPECTED: Final = "ragtrace.eval.injection_suspected"
"""Attribute, true on the span of a call whose texts contain instructions to a judge; such texts change no score."""
EVAL_UNSUPPORTED: Final = "ragtrace.eval.unsupported"
"""Unsupported statements with offsets and the closest passage, as a JSON array; with
`TelemetryOptions(evidence=True)`."""
EVAL_STATEMENTS: Final = "ragtrace.eval.statements"
"""Statements of the answer with the probabilities that a decision model gave, as a JSON array of objects with `start`,
`end` (offsets in the answer), `probability` (that the chunks support the statement) and `chunks` (ranks from 0)."""
EVAL_ADJUSTED_COUNT: Final = "ragtrace.eval.adjusted_count"
"""Number of calls that a score stands for: 1 / probability."""
EVAL_HIGHER_IS_BETTER: Final = "ragtrace.eval.higher_is_better"
"""Whether a higher score of the metric is better."""
EVAL_SCORE_ID: Final = "ragtrace.eval.score_id"
"""Score id of 32 hexadecimal digits on every evaluation event, which on a carrier span is the attribute
`evaluations.{i}.evaluation.identifier`. The id is the same for every repeat of a score: same trace id, span id,
metric and version, evaluator and version."""
FEEDBACK_CORRECTION: Final = "ragtrace.feedback.correction"
"""Text with which a person corrects the answer."""
EVALUATOR_ID: Final = "ragtrace.evaluator.id"
"""Id of the evaluator that gave a score."""
EVALUATOR_VERSION: Final = "ragtrace.evaluator.version"
"""Version of that evaluator: scores of different versions are not compared."""
EVALUATOR_TYPE: Final = "ragtrace.evaluator.type"
"""Kind of that evaluator: deterministic, model, decision, llm_judge or human."""
OUTCOME: Final = "ragtrace.outcome"
"""Outcome of what a counter counts, such as scored, partial, failed, sampled_out or dropped for a call."""
REASON: Final = "ragtrace.reason"
"""Reason of an outcome or a status; absent where there is none."""

STATUS_OK: Final = "ok"
STATUS_PARTIAL: Final = "partial"
STATUS_TIMEOUT: Final = "timeout"
"""Status of a span that the end of its provider exported before the scores were known; nothing sends them any more."""
STATUS_LATE: Final = "late"
"""Status of a span that was held for as long as it may be, while its call was still being scored: what comes of it
follows as events, metrics and a carrier span."""
STATUS_NOT_SAMPLED: Final = "not_sampled"
STATUS_CALL_FAILED: Final = "call_failed"
"""Status of a call in which the application raised an exception before there was an answer."""
STATUS_DROPPED: Final = "dropped"
STATUS_ERROR: Final = "error"
STATUS_HANDED_OVER: Final = "handed_over"
"""Status of a call that a fleet's worker judges: the scores follow as events, metrics and a carrier span."""
STATUS_DEFERRED: Final = "deferred"
"""Status of a span in a provider that holds no spans back: scores follow as events, metrics and a carrier span."""

METRIC_TAGS_OTHER: Final = "ragtrace.tags.other"
"""Calls whose value of a tag is counted as `other`, as there were too many."""
TAG_NAME: Final = "ragtrace.tag_name"
"""Name of a tag, on that metric."""
tag: Final = "ragtrace.tag.{}".format
"""Return the attribute for a tag of the call, by the tag's name: on its root span, a carrier span and its events."""
eval_score: Final = "ragtrace.eval.{}.score".format
"""Return the span attribute for the score of a metric, a double; absent when unscored."""
eval_label: Final = "ragtrace.eval.{}.label".format
"""Return the span attribute for the label of a metric."""
eval_evaluator: Final = "ragtrace.eval.{}.evaluator".format
"""Return the span attribute for id@version of the evaluator of a metric, where it differs from `EVAL_EVALUATOR`."""
eval_reason: Final = "ragtrace.eval.{}.reason".format
"""Return the span attribute for the reason why a metric is unscored."""
eval_calibration: Final = "ragtrace.eval.{}.calibration".format
"""Return the span attribute for the calibration of a metric whose score rests on probabilities of a decision model;
"uncalibrated": the score is no estimate of a rate. Absent for other scores."""
eval_detail: Final = "ragtrace.eval.detail.{}".format
"""Return the event attribute for a detail of a metric's result, such as a count (absent: 0) or the method."""

METRIC_SCORE: Final = "ragtrace.eval.score"
METRIC_RESULTS: Final = "ragtrace.eval.results"
METRIC_JUDGE_DURATION: Final = "ragtrace.eval.duration"
CACHED: Final = "ragtrace.cached"
"""Attribute of `METRIC_JUDGE_DURATION`: true where the labels come from the cache of judgements; else absent."""
METRIC_JUDGE_TOKENS: Final = "ragtrace.eval.tokens"
METRIC_JUDGE_TURN_TOKENS: Final = "ragtrace.eval.turn_tokens"
"""Metric of the judges' input tokens that show earlier turns of a conversation, estimated from their characters."""
METRIC_JUDGE_COST: Final = "ragtrace.eval.cost"
METRIC_MOMENT: Final = "ragtrace.eval.moment"
MOMENT: Final = "ragtrace.moment"
"""Attribute of `METRIC_MOMENT`: name of one of the additive sums from which estimates and intervals are computed."""
METRIC_LABEL_MOMENT: Final = "ragtrace.eval.label_moment"
"""Gauge of the sums over the labelled calls of a calibration in force; the attribute `MOMENT` names the sum."""
METRIC_CALIBRATION_HOLDS: Final = "ragtrace.eval.calibration_holds"
"""Gauge of a calibration: 1 while it is in force for the evaluator, 0 where it is stale or corrects nothing."""
METRIC_RAW_PROBABILITY: Final = "ragtrace.eval.raw_probability"
"""Gauge, 1 for a metric whose scores are raw probabilities of a decision model: their mean is not a rate."""
METRIC_CALLS: Final = "ragtrace.calls"
GUARD_METRIC: Final = "ragtrace.guard.metric"
"""Metric by which the guard of a call's function checks the answer, on the root span. The conventions have no names for
the results of a guard yet, only proposals; these follow the proposals in keeping the verdict apart from the action."""
GUARD_MODE: Final = "ragtrace.guard.mode"
"""Action for which a guard is configured: shadow, annotate, replace, retry or raise."""
GUARD_VERDICT: Final = "ragtrace.guard.verdict"
"""Verdict of a guard: pass, fail, or why it could not check: timeout, unscored, circuit_open, error."""
GUARD_ACTION: Final = "ragtrace.guard.action"
"""Action of a guard on the answer: none, annotated, replaced, retried, raised, or released (it was not checked)."""
GUARD_REASON: Final = "ragtrace.guard.reason"
"""Reason why a guard did not check the answer, or could not replace it; absent otherwise."""
GUARD_SENTENCES: Final = "ragtrace.guard.sentences"
"""Number of sentences of a stream that a guard was to check one by one before they left."""
GUARD_SENTENCES_UNCHECKED: Final = "ragtrace.guard.sentences_unchecked"
"""Number of these sentences that it could not check, because its budget was spent for instance."""
EVENT_GUARD: Final = "ragtrace.guard.result"
"""Event with what a guard found about an answer, and did with it."""
METRIC_GUARD_RESULTS: Final = "ragtrace.guard.results"
METRIC_GUARD_ADDED: Final = "ragtrace.guard.added"
"""Histogram of the time that a guard held answers back or, in shadow mode, would have held them back, in seconds."""
METRIC_JUDGE_STATE: Final = "ragtrace.judge.state"
JUDGE_STATE: Final = "ragtrace.judge.state"
"""Attribute of the metric of the same name, closed, open or half_open; the value is 1 for the current state, else 0."""
METRIC_CANARY_JUDGEMENTS: Final = "ragtrace.canary.judgements"
METRIC_CANARY_AGREEMENT: Final = "ragtrace.canary.agreement"
METRIC_CANARY_DRIFT: Final = "ragtrace.canary.drift"
METRIC_CANARY_TOKENS: Final = "ragtrace.canary.tokens"
METRIC_CANARY_COST: Final = "ragtrace.canary.cost"
"""Metrics of canaries, labelled calls that are judged again and again. The judgements are counted by `CANARY_LABEL`,
`OUTCOME` (agree, disagree, unscored, failed, postponed) and `REASON`. No other metric includes tokens and cost."""
CANARY_LABEL: Final = "ragtrace.canary.label"
"""Label that people gave to a canary: bad or good."""
METRIC_MODEL_CHANGES: Final = "ragtrace.judge.model_changes"
EVENT_MODEL_CHANGE: Final = "ragtrace.judge.model_change"
"""Event that the judge's server answers with another model than before."""
PREVIOUS_MODEL: Final = "ragtrace.judge.previous_model"
"""Attribute of the event that the judge's server answers with another model (`RESPONSE_MODEL`): the earlier model."""
METRIC_POSTED: Final = "ragtrace.sink.scores"
SINK: Final = "ragtrace.sink"
"""Attribute of `METRIC_POSTED`: name of the score sink."""
METRIC_ALERT_STATE: Final = "ragtrace.alert.state"
ALERT_STATE: Final = "ragtrace.alert.state"
"""Attribute of the metric of the same name and of the alert's event: ok, spiking, recovering, no_data, judge_failing,
no_baseline or no_calibration."""
ALERT_NAME: Final = "ragtrace.alert.name"
"""Name of an alert."""
EVENT_ALERT: Final = "ragtrace.alert"
"""Event that an alert fires or is resolved."""
ALERT_STATUS: Final = "ragtrace.alert.status"
"""Status of an alert: firing or resolved."""
ALERT_SINCE: Final = "ragtrace.alert.since"
"""Time when the problem of an alert began, in seconds since the epoch."""
ALERT_CALLS: Final = "ragtrace.alert.calls"
"""Number of scored calls behind `ALERT_ESTIMATE`."""
ALERT_ESTIMATE: Final = "ragtrace.alert.estimate"
"""Estimate of the metric's mean that an alert speaks of."""
ALERT_LOW: Final = "ragtrace.alert.low"
"""Lower end of the 95 % interval around `ALERT_ESTIMATE`."""
ALERT_HIGH: Final = "ragtrace.alert.high"
"""Upper end of that interval."""
ALERT_PART_OF: Final = "ragtrace.alert.part_of"
"""Name of the alert whose notification covers the same incident."""
ALERT_TRACES: Final = "ragtrace.alert.traces"
"""Trace ids of the worst calls, worst first."""
METRIC_QUEUE_SIZE: Final = "ragtrace.queue.size"
METRIC_HELD_SIZE: Final = "ragtrace.held.size"
METRIC_GATEWAY_REQUESTS: Final = "ragtrace.gateway.requests"
METRIC_GATEWAY_SPANS: Final = "ragtrace.gateway.spans"
METRIC_GATEWAY_IN_FLIGHT: Final = "ragtrace.gateway.in_flight.size"
METRIC_GATEWAY_SCORING_SPANS: Final = "ragtrace.gateway.scoring.spans"
METRIC_GATEWAY_CALLS: Final = "ragtrace.gateway.calls"
METRIC_GATEWAY_QUEUE: Final = "ragtrace.gateway.queue.size"
METRIC_GATEWAY_WAITING: Final = "ragtrace.gateway.waiting.spans"
"""Metrics of `ragtrace serve`. The counters among them have the attributes `OUTCOME` and `REASON`."""
METRIC_FLEET_QUEUE: Final = "ragtrace.fleet.queue.calls"
METRIC_FLEET_QUEUE_AGE: Final = "ragtrace.fleet.queue.age"
METRIC_FLEET_DEAD_LETTERS: Final = "ragtrace.fleet.dead_letters"
METRIC_FLEET_WORKERS: Final = "ragtrace.fleet.workers"
METRIC_FLEET_CLAIMS: Final = "ragtrace.fleet.claims"
METRIC_FLEET_BUDGET: Final = "ragtrace.fleet.budget.remaining"
"""Metrics of a fleet, from workers and gateways; each process reports the same values for the broker's queues."""
FLEET_BUDGET_KIND: Final = "ragtrace.fleet.budget"
"""Attribute of `METRIC_FLEET_BUDGET`: requests, tokens or usd."""
METRIC_FAULTS: Final = "ragtrace.faults"
FAULT_KIND: Final = "ragtrace.fault.kind"
"""Attribute of `METRIC_FAULTS`: place where ragtrace failed or gave up, a key of `ragtrace.stats().faults`."""
METRIC_LOST: Final = "ragtrace.lost"
SIGNAL: Final = "ragtrace.signal"
"""Attribute of `METRIC_LOST`: spans, events, or history for calls that were not stored."""
SCORE_BOUNDS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Bucket bounds of histograms of scores in [0, 1]; each bucket keeps an exemplar."""
CARRIER_OPERATION: Final = "evaluate"

# --- Stable: the exception event of a span ---------------------------------------------------------------------------
EVENT_EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"
SERVICE_INSTANCE: Final = "service.instance.id"

# --- Instrumentation scopes of frameworks in which ragtrace has listeners of its own ---------------------------------
LANGCHAIN_SCOPES: Final = (
    "openinference.instrumentation.langchain",
    "opentelemetry.instrumentation.langchain",
    "opentelemetry.instrumentation.genai.langchain",
)
LLAMA_INDEX_SCOPES: Final = (
    "openinference.instrumentation.llama_index",
    "opentelemetry.instrumentation.llamaindex",
    "opentelemetry.instrumentation.genai.llama_index",
)
HAYSTACK_SCOPES: Final = ("openinference.instrumentation.haystack", "opentelemetry.instrumentation.haystack")
OPENAI_AGENTS_SCOPES: Final = (
    "openinference.instrumentation.openai_agents",
    "opentelemetry.instrumentation.openai_agents",
    "opentelemetry.instrumentation.genai.openai_agents",
)
