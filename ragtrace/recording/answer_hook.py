"""Seam of a decorated function: what is given as its `guard=`, and runs it in place of the plain driver."""

from __future__ import annotations

from typing import Any, Protocol

from ragtrace.recording.recorder import StepSpec


class HookDriver(Protocol):
    """Driver of one function, whose answers it may hold back, check or replace."""

    def begin(self, runtime: Any) -> None:
        """Check that the hook can work with *runtime*, or with those to come if it is None, and keep itself checked.

        Raises:
            SettingsError: it cannot work with *runtime*.
        """
        ...

    def run(self, runtime: Any, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: bool) -> Any:
        """Call *wrapped*, record the call in *runtime*, and return what the caller is to get.

        Args:
            runtime: the current runtime.
            wrapped: the function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            bound: whether it is a method of an object.
        """
        ...


class AnswerHook(Protocol):
    """Object that is given as the `guard=` of `@trace`."""

    def driver(self, spec: StepSpec, function: Any) -> HookDriver:
        """Return the driver of *function*, which makes steps of the specification *spec*.

        Raises:
            SettingsError: the hook cannot work with the function.
        """
        ...
