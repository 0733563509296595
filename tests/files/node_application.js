// RAG application in JavaScript: OpenTelemetry's SDK for Node.js, attributes of OpenInference, exporter of the environment.
"use strict";

const { SpanStatusCode, trace } = require("@opentelemetry/api");
const { NodeSDK } = require("@opentelemetry/sdk-node");
const { OpenInferenceSpanKind, SemanticConventions } = require("@arizeai/openinference-semantic-conventions");

const QUESTION = "How tall is the Eiffel Tower?";
const PASSAGE = "The Eiffel Tower in Paris is 330 metres tall.";
const ANSWER = "The Eiffel Tower is 330 metres tall.";

async function step(tracer, name, kind, attributes, work) {
  const all = { [SemanticConventions.OPENINFERENCE_SPAN_KIND]: kind, ...attributes };
  return tracer.startActiveSpan(name, { attributes: all }, async (span) => {
    try {
      return await work(span);
    } finally {
      span.setStatus({ code: SpanStatusCode.OK });
      span.end();
    }
  });
}

async function ask(tracer) {
  const { INPUT_VALUE, OUTPUT_VALUE, RETRIEVAL_DOCUMENTS, DOCUMENT_CONTENT, DOCUMENT_SCORE } = SemanticConventions;
  const { LLM_INPUT_MESSAGES, LLM_OUTPUT_MESSAGES, LLM_MODEL_NAME, LLM_TOKEN_COUNT_PROMPT } = SemanticConventions;
  const { MESSAGE_ROLE, MESSAGE_CONTENT } = SemanticConventions;
  await step(tracer, "ask", OpenInferenceSpanKind.CHAIN, { [INPUT_VALUE]: QUESTION }, async (root) => {
    const document = `${RETRIEVAL_DOCUMENTS}.0`;
    const found = { [`${document}.${DOCUMENT_CONTENT}`]: PASSAGE, [`${document}.${DOCUMENT_SCORE}`]: 0.87 };
    await step(tracer, "search", OpenInferenceSpanKind.RETRIEVER, { [INPUT_VALUE]: QUESTION, ...found }, async () => {});
    const chat = {
      [LLM_MODEL_NAME]: "gpt-4o-mini",
      [LLM_TOKEN_COUNT_PROMPT]: 31,
      [`${LLM_INPUT_MESSAGES}.0.${MESSAGE_ROLE}`]: "user",
      [`${LLM_INPUT_MESSAGES}.0.${MESSAGE_CONTENT}`]: `Context: ${PASSAGE}\n\nQuestion: ${QUESTION}`,
      [`${LLM_OUTPUT_MESSAGES}.0.${MESSAGE_ROLE}`]: "assistant",
      [`${LLM_OUTPUT_MESSAGES}.0.${MESSAGE_CONTENT}`]: ANSWER,
    };
    await step(tracer, "chat", OpenInferenceSpanKind.LLM, chat, async () => {});
    root.setAttribute(OUTPUT_VALUE, ANSWER);
  });
}

async function main() {
  const sdk = new NodeSDK();
  sdk.start();
  const tracer = trace.getTracer("@arizeai/openinference-instrumentation-langchain", "4.0.0");
  for (let call = 0; call < Number(process.argv[2]); call += 1) {
    await ask(tracer);
  }
  await sdk.shutdown();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
