"""Random objects of classes that ragtrace does not know, each of whose methods tells a hook that it was run."""

from __future__ import annotations

from collections import UserDict, UserList, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final

from ragtrace.capture.field_names import VOCABULARY

Hook = Callable[[], None]

METHODS: Final = (
    "__getattribute__ __getattr__ __len__ __iter__ __str__ __repr__ __bool__ __eq__ __hash__ __getitem__ __contains__"
    " __format__ __index__ __int__ __float__ __call__ __lt__ __aiter__ __await__ __enter__ __dir__ __next__ __anext__"
    " keys values items get __wrapped__ __class__ __dict__ __name__ __module__ __doc__ read response_gen"
    " async_response_gen __instancecheck__ __subclasscheck__ headers status_code __reduce_ex__ __length_hint__"
).split()
PROPERTIES: Final = (
    "__class__",
    "__dict__",
    "__name__",
    "__module__",
    "__doc__",
    "__wrapped__",
    "headers",
    "status_code",
)
NAMES: Final = tuple(sorted(VOCABULARY))
META: Final = ("__eq__", "__hash__", "__getattribute__", "__instancecheck__", "__repr__", "__call__", "__iter__")
BASES: Final[tuple[tuple[type[Any], ...], ...]] = (
    (), (), (), (), (str,), (int,), (float,), (dict,), (list,), (tuple,), (UserDict,), (UserList,), (Sequence,),
    (Mapping,), (deque,), (bytes,),
)  # fmt: skip


class ForeignError(Exception):
    """What a hostile method raises in the end."""


class Foreign:
    """Makes values for the functions under test, deterministic for a seed.

    Args:
        seed: of the random numbers.
        hook: called whenever a method or property of a made class is run.
    """

    def __init__(self, seed: int, hook: Hook) -> None:
        self._random, self._hook = Random(seed), hook

    def value(self, depth: int = 0) -> Any:
        """A hostile object, or plain containers with hostile objects inside."""
        random = self._random
        choice = random.random()
        if depth > 2 or choice < 0.5:
            return self._object(depth)
        if choice < 0.6:
            return [self.value(depth + 1) for _ in range(random.randrange(1, 6))]
        if choice < 0.65:
            return tuple(self.value(depth + 1) for _ in range(random.randrange(1, 4)))
        if choice < 0.85:
            return {random.choice(NAMES): self.value(depth + 1) for _ in range(random.randrange(1, 6))}
        if choice < 0.9:
            return [self._object(depth)] * random.choice((10, 1_000, 3_000))
        if choice < 0.95:
            return MappingProxyType({random.choice(NAMES): self.value(depth + 1)})
        record: dict[str, Any] = {}
        record.update(dict.fromkeys(random.sample(NAMES, 12), record))
        return record

    def error(self) -> BaseException:
        """An exception of a hostile class, with hostile arguments."""
        members = {name: self._method(name) for name in ("__str__", "__repr__", "__eq__", "__hash__", "__getattr__")}
        members |= {name: property(self._method(name)) for name in ("__cause__", "__traceback__", "args", "text")}
        wanted = self._random.sample(sorted(members), 4)
        made = self._class((Exception,), {name: members[name] for name in wanted})
        if not issubclass(made, Exception):
            return ValueError(self._object(3))
        error: BaseException = type.__call__(made, self._object(3), "said")
        return error

    def _object(self, depth: int) -> Any:
        random = self._random
        base = random.choice(BASES)
        names = random.sample(METHODS, random.randrange(0, 12))
        members: dict[str, Any] = {}
        for name in names:
            members[name] = property(self._method(name)) if name in PROPERTIES else self._method(name)
        for name in random.sample(NAMES, random.randrange(0, 12)):
            members[name] = property(self._method(name))
        if base and base[0] in (Sequence, Mapping):
            members |= {name: self._method(name) for name in ("__getitem__", "__len__", "__iter__")}
        made = self._class(base, members)
        try:
            instance = object.__new__(made) if not base or base[0] in (Sequence, Mapping) else base[0].__new__(made)
            if random.random() < 0.5 and type.__getattribute__(made, "__dictoffset__"):
                fields = {random.choice(NAMES): self._plain(depth) for _ in range(3)}
                for name, value in fields.items():
                    object.__setattr__(instance, name, value)
        except (TypeError, AttributeError, ForeignError):
            return made
        return instance

    def _plain(self, depth: int) -> Any:
        return self._random.choice(("text", 1, None, [], {}, ["a"], {"text": "b"}))

    def _class(self, bases: tuple[type[Any], ...], members: dict[str, Any]) -> Any:
        kind: Any = type(bases[0]) if bases else type
        if self._random.random() < 0.3:
            # `ABCMeta` itself asks a class for its attributes, and may never come to an end with the answer.
            wanted = self._random.sample(META if kind is type else META[:2] + META[3:], 3)
            kind = type("Meta", (kind,), {name: self._method(name) for name in wanted})
        try:
            return type.__call__(kind, "Foreign", bases, dict(members))
        except Exception:  # the abstract classes of the standard library ask a class while it is made
            return type("Foreign", (), {name: each for name, each in members.items() if name not in METHODS})

    def _method(self, name: str) -> Callable[..., Any]:
        outcome = self._random.choice(("raise", "self", "text", "endless", "number"))
        hook = self._hook

        def method(self: object, *_: object, **__: object) -> Any:
            hook()
            if outcome == "raise" or name in ("__hash__", "__class__", "__module__"):
                raise ForeignError(name)
            if outcome == "endless":
                return iter(["x"] * 5_000)
            return {"self": self, "text": "text", "number": 1}[outcome]

        method.__name__ = name
        return method
