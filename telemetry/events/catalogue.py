"""The catalogue of messages as a list: searched, filtered and sorted by what stands in an address. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falconweb.errors import Invalid
from telemetry.events.messages import CATALOGUE, Message
from telemetry.events.models import Severity

LONGEST = 200
REGISTRIES: Final = tuple(dict.fromkeys(one.registry for one in CATALOGUE.values()))
RANKS: Final = {severity: place for place, severity in enumerate(Severity.values)}
# By the word in the address; the first is the order of the catalogue: FalconWeb's own, then what is nearest to links.
SORTS: Final[dict[str, tuple[str, Callable[[Message], Any] | None]]] = {
    "registry": ("By registry", None),
    "worst": ("Worst first", lambda one: (-RANKS[one.severity], one.name.casefold())),
    "name": ("Name", lambda one: one.name.casefold()),
}
COLUMNS: Final = ("message", "registry", "severity", "what_it_means", "what_to_do")


@dataclass(frozen=True)
class MessageFilter:
    """Which messages to keep: those with every word, of this registry and severity ('': any)."""

    words: tuple[str, ...] = ()
    registry: str = ""
    severity: str = ""
    sort: str = "registry"

    def __bool__(self) -> bool:
        """Tell whether anything is asked for."""
        return bool(self.words or self.registry or self.severity)

    @classmethod
    def of(cls, given: Mapping[str, str], *, search: str = "q") -> MessageFilter:
        """Read it from the parameters of an address; raises Invalid with those that are wrong."""
        errors: dict[str, str] = {}
        text = given.get(search, "").replace("\0", " ")
        if len(text) > LONGEST:
            errors[search] = f"Give at most {LONGEST} characters."
        choices: list[tuple[str, Sequence[str]]] = [
            ("registry", REGISTRIES), ("severity", Severity.values), ("sort", list(SORTS)),
        ]  # fmt: skip
        chosen = {name: given.get(name, "") for name, _ in choices}
        for name, known in choices:
            if chosen[name] and chosen[name] not in known:
                errors[name] = f"One of {', '.join(known)}."
        if errors:
            raise Invalid("The messages cannot be looked up.", errors=errors)
        sort = chosen.pop("sort") or "registry"
        return cls(words=tuple(text.casefold().split()), sort=sort, **chosen)

    def found(self) -> list[Message]:
        """Return the messages that fit, in their order."""
        kept = [one for one in CATALOGUE.values() if self._keeps(one)]
        order = SORTS[self.sort][1]
        return sorted(kept, key=order) if order is not None else kept

    def _keeps(self, one: Message) -> bool:
        text = f"{one.name} {one.explanation} {one.advice}".casefold()
        fits = self.registry in {"", one.registry} and self.severity in {"", one.severity}
        return fits and all(word in text for word in self.words)


def message_rows(found: Sequence[Message]) -> Iterator[tuple[str, ...]]:
    """Yield a row of a table for each message; its columns are COLUMNS."""
    for one in found:
        yield one.name, one.registry, one.severity, one.explanation, one.advice
