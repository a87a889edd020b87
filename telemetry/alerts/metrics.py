"""What rules may be about: the quantities that the site knows, and all that any chassis measures or has measured."""

from __future__ import annotations

import difflib
import itertools
import re
import time
from collections.abc import Iterable, Iterator
from typing import Final

import redis

from accounts.models import User
from fabric.bmc.types import Quantity
from fabric.models import Chassis
from falconweb.errors import Invalid, Unavailable
from telemetry import live
from telemetry.alerts.checks import ERROR_RATE, RATE, fits, is_key, rate_of
from telemetry.catalogue import LABELS, RATES, Entry
from telemetry.links.counters import BY_NAME
from telemetry.store.reading import known_series

OBJECTS: Final = ("device", "port", "drawer", "chassis")
ANY: Final = "0"  # stands for the number of whatever has one
NUMBERS: Final = re.compile(r"[\d*?\[\]!-]+")  # one, or a pattern of them
MOST_NEAR: Final = 3
MEASURED_WITHIN: Final = 92 * 86400.0  # s: as far back as a rule can be tried


def metric_choices(person: User) -> list[tuple[str, str]]:
    """Return the quantities that are measured, for a form: those of the live catalogues that the person may see."""
    found: dict[str, str] = {}
    for pk in Chassis.objects.visible_to(person).filter(enabled=True).order_by("pk").values_list("pk", flat=True)[:20]:
        for entry in live.catalogue(pk):
            found.setdefault(entry["quantity"], _words(entry))
    if "errors" in found:
        found[ERROR_RATE] = "Errors, rate (1/s)"
    return sorted(found.items())


def metric_required(metric: str) -> None:
    """Raise Invalid, with what is `near`, for a metric that names nothing which anything knows.

    What the site knows is asked first, then what is measured now, then what was: a rule may come before its chassis.
    Raises Unavailable where only the live catalogues could tell, and they cannot be reached.
    """
    wanted, numbers = _of_any(metric)
    if any(fits(wanted, entry) for entry in KNOWN):
        return
    known = list(KNOWN)
    try:
        for entry in _measured():
            if fits(metric, entry):
                return
            known.append(entry)
    except (redis.RedisError, OSError) as error:
        raise Unavailable(
            f"Whether anything is called '{metric[:100]}' cannot be told: Redis does not answer."
        ) from error
    near = [one.replace(f"/{ANY}/", f"/{numbers or '*'}/", 1) for one in _near(wanted, known)]
    hint = f"Is {' or '.join(near)} meant?" if near else f"Quantities are {', '.join(sorted(QUANTITIES))}."
    sentence = f"Nothing is called '{metric[:100]}'. {hint}"
    raise Invalid(sentence, errors={"metric": sentence}, near=near)


def _near(wanted: str, known: Iterable[Entry]) -> list[str]:
    """Return what is written much alike: keys for a pattern of keys, else quantities, and keys of error counters."""
    names: dict[str, str] = {}
    for entry in known:
        key, _ = _of_any(entry["key"])
        if is_key(wanted):
            names[key.casefold()] = key
            continue
        names[entry["quantity"].casefold()] = entry["quantity"]
        if entry["quantity"] == Quantity.ERRORS:
            names.setdefault(key.rpartition("/")[2].casefold(), f"port/{key.split('/', 1)[1]}")
    # Keys are much alike by their beginnings.
    cutoff = 0.8 if is_key(wanted) else 0.55
    return [names[one] for one in difflib.get_close_matches(wanted.casefold(), list(names), n=MOST_NEAR, cutoff=cutoff)]


def _known() -> Iterator[Entry]:
    for quantity in Quantity:
        name = RATES.get(quantity, quantity.value)
        details = tuple(BY_NAME) if quantity is Quantity.ERRORS else ("",)
        for kind in OBJECTS:
            for detail in details:
                key = f"{kind}/{ANY}/{name}" + (f"/{detail}" if detail else "")
                entry = Entry(key=key, object=kind, id=0, quantity=name, label="", unit="")
                yield entry
                if quantity is Quantity.ERRORS:
                    yield rate_of(entry)


KNOWN: Final = tuple(_known())
QUANTITIES: Final = frozenset(entry["quantity"] for entry in KNOWN)


def _measured() -> Iterator[Entry]:
    """Yield what chassis measure, then what they have measured: both with the rates of error counters."""
    chassis = list(Chassis.objects.order_by("pk").values_list("pk", flat=True))
    now = time.time()
    live_ones = (entry for pk in chassis for entry in live.catalogue(pk))
    stored = (entry for pk in chassis for entry in known_series(pk, since=now - MEASURED_WITHIN, until=now))
    for entry in itertools.chain(live_ones, stored):
        if entry["key"].endswith(RATE):
            continue  # as the store calls them
        yield entry
        if entry["quantity"] == Quantity.ERRORS:
            yield rate_of(entry)


def _of_any(metric: str) -> tuple[str, str]:
    """Return a key, or a pattern of keys, as of anything of its kind, and the numbers that it had: those change."""
    steps = metric.split("/")
    if len(steps) < 3 or NUMBERS.fullmatch(steps[1]) is None:
        return metric, ""
    numbers, steps[1] = steps[1], ANY
    return "/".join(steps), numbers


def _words(entry: Entry) -> str:
    known = {quantity.value: label for quantity, label in LABELS.items()}
    label = known.get(entry["quantity"], (entry["label"], entry["unit"]))[0] or entry["label"]
    unit = f" ({entry['unit']})" if entry["unit"] and entry["unit"] != "state" else ""
    return f"{label}{unit}"
