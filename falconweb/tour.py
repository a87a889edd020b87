"""The tour of a person's first minutes: five pages, with a sentence about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from accounts.models import User
from core.errors import Invalid
from core.language import _, gettext_noop


@dataclass(frozen=True)
class TourPage:
    """A page of the tour: the name of its address, its title, and what to see there."""

    view: str
    title: str
    words: str


TOUR: Final = (
    TourPage(
        "fabric:overview",
        gettext_noop("Overview"),
        gettext_noop("Active problems come first, then the fleet, and what is free."),
    ),
    TourPage(
        "fabric:fabric",
        gettext_noop("Fleet map"),
        gettext_noop("A tile is a chassis, a cell in it a slot. Choose one to see its topology."),
    ),
    TourPage(
        "fabric:give",
        gettext_noop("Attach"),
        gettext_noop("Ask for GPUs for a host here, or drag a device to a host port on the fabric page."),
    ),
    TourPage(
        "links:links",
        gettext_noop("Link health"),
        gettext_noop("Links below their maximum width or speed, worst first, with the cause."),
    ),
    TourPage(
        "fabric:plans",
        gettext_noop("Plans"),
        gettext_noop("Several changes are one plan to review, apply and undo. Benchmarks measure them."),
    ),
)
OVER: Final = 0  # the step of who has seen or ended it


@dataclass(frozen=True)
class TourStep:
    """A step as it is shown on a page; `before` and `after` are numbers of others, OVER for none."""

    page: TourPage
    number: int
    count: int
    before: int
    after: int
    is_here: bool

    @property
    def url(self) -> str:
        """The address of its page."""
        return reverse(self.page.view)


def tour_step(person: User, view: str) -> TourStep | None:
    """Return the step of a person on the page of a view: the first is offered on its own page alone."""
    number = person.tour_step
    if not 0 < number <= len(TOUR):
        return None
    page = TOUR[number - 1]
    is_here = page.view == view
    if number == 1 and not is_here:
        return None
    after = number + 1 if number < len(TOUR) else OVER
    return TourStep(page, number, len(TOUR), before=number - 1, after=after, is_here=is_here)


def tour_go(person: User, number: int) -> str:
    """Store the step that a person goes to, OVER to end the tour; return the address of its page, '' for none."""
    if not 0 <= number <= len(TOUR):
        raise Invalid(_("There is no such step of the tour."))
    person.tour_step = number
    person.save(update_fields=["tour_step"])
    return reverse(TOUR[number - 1].view) if number else ""
