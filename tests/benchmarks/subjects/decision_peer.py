"""Scores calls by the decision judges of one library, in an environment of its own.

    decision_peer.py NAME URL < calls.json

Each call is judged for faithfulness, answer relevancy and context relevance as the library's documentation has it; its
scores are printed as JSON. The file imports nothing of ragtrace, as the environments of the others do not have it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

Calls = list[dict[str, Any]]


def deepeval(calls: Calls, url: str) -> Iterator[object]:
    """DeepEval's built-in metrics in the mode `system_one`: one request a metric about the whole call."""
    os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"
    metrics, cases = import_module("deepeval.metrics"), import_module("deepeval.test_case")
    model = import_module("deepeval.models.system_one.typesafe_model").TypeSafeModel(api_key="none", base_url=url)
    kinds = metrics.FaithfulnessMetric, metrics.AnswerRelevancyMetric, metrics.ContextualRelevancyMetric
    for call in calls:
        case = cases.LLMTestCase(input=call["query"], actual_output=call["answer"], retrieval_context=call["contexts"])
        for kind in kinds:
            metric = kind(eval_mode="system_one", system_one_model=model, async_mode=False)
            yield metric.measure(case, _show_indicator=False)


def mlflow(calls: Calls, url: str) -> Iterator[object]:
    """MLflow's judges with a `typesafe:/` model: one yes-or-no question a request; relevance is asked of each chunk."""
    os.environ["TYPESAFE_API_KEY"] = "none"
    judges = import_module("mlflow.genai.judges")
    client: Any = import_module("mlflow.genai.judges.typesafe")
    client.TYPESAFE_API_BASE_URL = f"{url}/v1"  # the judges take no address
    model = "typesafe:/jev-1"
    for call in calls:
        query, answer = call["query"], call["answer"]
        yield str(judges.is_grounded(request=query, response=answer, context=call["contexts"], model=model).value)
        # MLflow's scorer RelevanceToQuery asks this of the answer.
        yield str(judges.is_context_relevant(request=query, context=answer, model=model).value)
        for chunk in call["contexts"]:
            yield str(judges.is_context_relevant(request=query, context=chunk, model=model).value)


if __name__ == "__main__":
    judges: dict[str, Callable[[Calls, str], Iterator[object]]] = {"deepeval": deepeval, "mlflow": mlflow}
    print(json.dumps(list(judges[sys.argv[1]](json.load(sys.stdin), sys.argv[2]))))
