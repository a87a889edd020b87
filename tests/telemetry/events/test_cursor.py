"""Who reads by cursor misses nothing, also on PostgreSQL, where events are seen in another order than numbered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.postgres import PostgresServer

pytestmark = pytest.mark.process

# In a process of its own: Django knows one database from its start on.
PLAYED = """
import threading, django
django.setup()
from django.db import connections, transaction
from django.utils import timezone
from telemetry.events.selectors import events_after, horizon
from telemetry.events.models import Event
from telemetry.events.services import event_record

def record(text, key=""):
    now = timezone.now()
    return event_record(source="site", message_id="FalconWeb.1.0.Test", severity="OK", text=text, at=now, key=key)

def pulled(cursor):
    return [event.text for block in events_after(Event.objects.all(), cursor) for event in block]

assert horizon() == 0
written, go_on = threading.Event(), threading.Event()

def slow():
    with transaction.atomic():
        record("slow")
        written.set()
        go_on.wait(60)
    connections.close_all()

thread = threading.Thread(target=slow)
thread.start()
assert written.wait(60)
first = horizon()
for number in range(3):
    record(f"quick {number}")
# The quick ones are committed, and seen; but an event with a smaller number is still to come.
assert Event.objects.count() == 3, Event.objects.count()
assert pulled(0) == [], pulled(0)
assert horizon() == first == 0
go_on.set()
thread.join()
assert pulled(0) == ["slow", "quick 0", "quick 1", "quick 2"], pulled(0)
try:
    with transaction.atomic():
        record("undone")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
last = horizon()
record("after")
assert pulled(last) == ["after"]
# What two tell at once is told once.
barrier = threading.Barrier(6)
def same():
    barrier.wait()
    record("same", key="same")
    connections.close_all()
threads = [threading.Thread(target=same) for _ in range(6)]
[one.start() for one in threads]
[one.join() for one in threads]
assert Event.objects.filter(text="same").count() == 1
print("whole")
"""


def test_a_cursor_never_passes_an_event_that_is_still_being_written(postgres_server: PostgresServer) -> None:
    database = postgres_server.new_database("cursor")
    environment = {**os.environ, "DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
    played = subprocess.run(
        [sys.executable, "-c", PLAYED], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert played.stdout.endswith("whole\n"), played.stderr
