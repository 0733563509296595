"""Read by mypy and pyright, never run: every line marked `wrong` must be an error, or the decorators lost a type."""

import ragtrace


@ragtrace.retrieve
def search(query: str, k: int = 5) -> list[str]:
    return [query] * k


@ragtrace.trace(name="support")
async def ask(question: str) -> str:
    return question


def uses() -> None:
    search(7)  # wrong
    search("q", size=3)  # wrong
    ask("q").upper()  # wrong
    ragtrace.configure(servise="support-bot")  # wrong
