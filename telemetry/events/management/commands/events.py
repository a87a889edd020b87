"""`manage.py events`: the event log on the command line, for administrators of the machine."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from core.errors import Invalid
from telemetry.events.filters import FILTERS, EventFilter
from telemetry.events.models import Event
from telemetry.events.selectors import EVENT_COLUMNS, events_after, horizon

USAGE = 2
LOOK_SECONDS = 1.0


class Command(BaseCommand):
    help = "Print matching events, oldest first; the number before each is the cursor for --after."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print each as a line of JSON")
        parser.add_argument("--after", type=int, default=0, help="start after the event with this number")
        parser.add_argument("--follow", action="store_true", help="wait for new events")
        for name in FILTERS:
            parser.add_argument(f"--{name}", default="", help="filter, as on the page")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run, and exit with USAGE for a wrong filter."""
        try:
            selection = EventFilter.of({name: options[name] for name in FILTERS})
        except Invalid as error:
            self.stderr.write(" ".join([error.sentence, *error.details["errors"].values()]))
            sys.exit(USAGE)
        after = options["after"]
        while True:
            end = horizon()
            for block in events_after(selection.apply(Event.objects.all()), after, until=end):
                self.stdout.write("\n".join(_line(event, as_json=options["json"]) for event in block))
            self.stdout.flush()
            after = max(after, end)
            if not options["follow"]:
                return
            time.sleep(LOOK_SECONDS)


def _line(event: Event, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({name: column(event) for name, column in EVENT_COLUMNS.items()}, ensure_ascii=False)
    about = " ".join(dict.fromkeys(word for word in (event.chassis_name, event.subject_name) if word))
    return f"{event.pk} {event.at:%Y-%m-%d %H:%M:%S} {event.severity:8} {about}: {event.text}".replace("\n", " ")
