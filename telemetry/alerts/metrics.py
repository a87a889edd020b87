"""What rules may be about: the quantities that the site knows, and all that any chassis measures or has measured."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import redis
from django.db.models import Max

from accounts.models import User
from fabric.bmc.types import Quantity
from fabric.models import Chassis
from falconweb.errors import Invalid, Unavailable
from telemetry.alerts.checks import ERROR_RATE, RATE, fits, is_key, is_rate, rate_of
from telemetry.catalogue import LABELS, RATES, USUAL_UNITS, Entry
from telemetry.links.counters import BY_NAME
from telemetry.live import CATALOGUES_AT_ONCE, catalogues
from telemetry.store.models import Catalogue

OBJECTS: Final = ("device", "port", "drawer", "chassis")
ANY: Final = "0"  # stands for the number of whatever has one
NUMBERS: Final = re.compile(r"[\d*?\[\]!-]+")  # one, or a pattern of them
MOST_NEAR: Final = 3
MOST_SECONDS: Final = 2.0  # who types waits for the answer


def metric_choices(person: User) -> list[tuple[str, str]]:
    """Return the quantities that are measured, for a form: those of the live catalogues that the person may see."""
    found: dict[str, str] = {}
    rows = Chassis.objects.visible_to(person).filter(enabled=True).order_by("pk").values_list("pk", flat=True)
    for entry in catalogues(list(rows[:CATALOGUES_AT_ONCE])):
        if entry["quantity"] not in found:
            found[entry["quantity"]] = _words(entry)
    if "errors" in found:
        found[ERROR_RATE] = "Errors, rate (1/s)"
    return sorted(found.items())


def metric_required(metric: str) -> None:
    """Raise Invalid, with what is `near`, for a metric that names nothing which anything knows.

    What the site knows is asked first, then what is measured now, then what was when chassis were read last: a rule may
    come before its chassis. Raises Unavailable where only the catalogues could tell, and they cannot be reached, or not
    be gone through in time. Call it outside of transactions: it may take some seconds.
    """
    wanted, numbers = _of_any(metric)
    if any(fits(one, entry) for one in (metric, wanted) for entry in KNOWN):
        return
    # Of a site's series only what they are called: many chassis measure the same.
    known = {(entry["key"], entry["quantity"]): entry for entry in KNOWN}
    sentence = f"Whether anything is called '{metric[:100]}' cannot be told"
    try:
        for entry in _measured(rates=is_rate(metric)):
            if fits(metric, entry):
                return
            known.setdefault((_of_any(entry["key"])[0], entry["quantity"]), entry)
    except TimeoutError as error:
        raise Unavailable(f"{sentence} in time: too much is measured. Choose one of the list, or try again.") from error
    except (redis.RedisError, OSError) as error:
        raise Unavailable(f"{sentence}: Redis does not answer.") from error
    near = [one.replace(f"/{ANY}/", f"/{numbers or '*'}/", 1) for one in _near(wanted, known.values())]
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


# What an object may have several sensors of: their keys go on with a name, which the site cannot know before.
OF_SENSORS: Final = frozenset({*USUAL_UNITS, Quantity.OTHER})


def _known() -> Iterator[Entry]:
    for quantity in Quantity:
        name = RATES.get(quantity, quantity.value)
        details = tuple(BY_NAME) if quantity is Quantity.ERRORS else ("", "*") if quantity in OF_SENSORS else ("",)
        for kind in OBJECTS:
            for detail in details:
                key = f"{kind}/{ANY}/{name}" + (f"/{detail}" if detail else "")
                entry = Entry(key=key, object=kind, id=0, quantity=name, label="", unit="")
                yield entry
                if quantity is Quantity.ERRORS:
                    yield rate_of(entry)


KNOWN: Final = tuple(_known())
QUANTITIES: Final = frozenset(entry["quantity"] for entry in KNOWN)


def _measured(*, rates: bool) -> Iterator[Entry]:
    """Yield what chassis measure, then what they measured as last stored; TimeoutError where one of both takes long.

    Of error counters it is the `rates` that are wanted, or the counters.
    """
    chassis = list(Chassis.objects.order_by("pk").values_list("pk", flat=True))
    for part in (catalogues(chassis), _stored(chassis)):
        end = time.monotonic() + MOST_SECONDS
        for entry in part:
            if not entry["key"].endswith(RATE):  # as the store's rollups call them
                yield rate_of(entry) if rates and entry["quantity"] == Quantity.ERRORS else entry
            if time.monotonic() >= end:
                raise TimeoutError


def _stored(chassis: Sequence[int]) -> Iterator[Entry]:
    """Yield what the newest stored catalogue of each chassis has."""
    newest = Catalogue.objects.filter(chassis__in=chassis).order_by().values("chassis").annotate(newest=Max("pk"))
    for row in Catalogue.objects.filter(pk__in=newest.values("newest")).iterator(chunk_size=CATALOGUES_AT_ONCE):
        yield from row.entries


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
