"""Tags in a configuration: those on metrics and in estimates, and those that come by OpenTelemetry baggage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragtrace.core.options import option
from ragtrace.core.settings import RawValue, Setting, names_in_list, whole_number
from ragtrace.core.tags import MOST_TAGS, check_tag_name
from ragtrace.runtime.feature import Feature
from ragtrace.runtime.runtime import Runtime
from ragtrace.tagging.tagged_moments import TaggedMoments


@option
@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Tags that become attributes of metrics, and tags that come from other services.

    Examples:
        >>> tags = ragtrace.types.Tags(baggage=["tenant"], metrics=["tenant"], most_values=20)
        >>> ragtrace.configure(exporter="none", tags=tags)
    """

    baggage: Sequence[str] | None = None
    """Names of entries of OpenTelemetry baggage that become tags of a call whose own tags do not have them."""
    metrics: Sequence[str] | None = None
    """Names of tags that are attributes of the metrics of scores, and of which `ragtrace.estimate(tags=...)` knows.
    Only such as have few values: an id of a user or of a request is none."""
    most_values: int | None = None
    """Values of each of these tags that are told apart in this process, the first that come; the calls of all others
    are counted as `other`. Default 50."""


def _tag_names(value: RawValue) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(map(check_tag_name, names_in_list(value))))
    if len(names) > MOST_TAGS:
        raise value.error(f"expected at most {MOST_TAGS} names, as a call has no more tags", "leave some out")
    return names


class TaggingFeature(Feature):
    """Tags that a configuration names."""

    argument = "tags"
    options = Tags
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            "tags_baggage",
            (),
            _tag_names,
            meaning="entries of OpenTelemetry baggage that become [tags](tags.md) of calls",
            keyword="Tags(baggage=)",
            shown_default="none",
        ),
        Setting(
            "tags_metrics",
            (),
            _tag_names,
            meaning="[tags](tags.md) that are attributes of the metrics of scores, and have estimates of their own",
            keyword="Tags(metrics=)",
            shown_default="none",
        ),
        Setting(
            "tags_most_values",
            50,
            whole_number(1, 1_000),
            meaning="values of each of these tags that are told apart; the others are `other`",
            keyword="Tags(most_values=)",
        ),
    )

    def baggage(self) -> tuple[str, ...]:
        """Return the names of entries of baggage that become tags."""
        names: tuple[str, ...] = self.values["baggage"]
        return names

    def parts(self, runtime: Runtime) -> Iterator[TaggedMoments]:
        """Return what keeps the sums of scores by tag, if there are any to be kept."""
        if self.values["metrics"]:
            yield TaggedMoments(runtime.moments.assignment, self.values["metrics"], self.values["most_values"])
