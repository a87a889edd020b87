"""Times that people choose by days and hours, and cron for whoever wants it."""

from __future__ import annotations

import pytest
from django.test import Client

from telemetry.exports.models import ExportDefinition
from telemetry.exports.times import ScheduleTimes, schedule_times
from tests.telemetry.exports.test_faces import FORM, page, post


@pytest.mark.parametrize(
    ("times", "cron", "words"),
    [
        (ScheduleTimes(15), "15 * * * *", "each hour at :15"),
        (ScheduleTimes(15, (3,)), "15 3 * * *", "each day at 03:15"),
        (ScheduleTimes(0, (3, 12), (0, 6, 1)), "0 3,12 * * 0,1,6", "Mon, Sat, Sun at 03:00, 12:00"),
        (ScheduleTimes(5, (), (5,)), "5 * * * 5", "Fri, each hour at :05"),
        (ScheduleTimes(0, (1,), (0, 1, 2, 3, 4, 5, 6)), "0 1 * * 0,1,2,3,4,5,6", "each day at 01:00"),
    ],
)
def test_days_and_hours_are_cron_and_words(times: ScheduleTimes, cron: str, words: str) -> None:
    assert (times.cron, times.words) == (cron, words)
    again = schedule_times(cron)
    assert again is not None
    assert (again.cron, again.words) == (cron, words)


@pytest.mark.parametrize(
    "cron", ["", "15 3 1 * *", "*/5 * * * *", "60 * * * *", "0 24 * * *", "0 3 * * 7", "0 3-5 * * *"]
)
def test_what_days_and_hours_cannot_say_is_left_to_cron(cron: str) -> None:
    assert schedule_times(cron) is None


@pytest.mark.django_db(databases="__all__")
def test_the_form_takes_days_and_hours_and_shows_them_again(administrator_client: Client) -> None:
    chosen = {**FORM, "schedule": "cron", "on_days": ["1", "5"], "at_hours": ["3"], "at_minute": "15"}
    assert post(administrator_client, "export_add", **chosen).status_code == 302
    definition = ExportDefinition.objects.get()
    assert definition.cron == "15 3 * * 1,5"
    for name, numbers in (("exports", ()), ("export", (definition.pk,))):
        assert "Mon, Fri at 03:15" in page(administrator_client, name, *numbers)
    form = administrator_client.get(f"/exports/{definition.pk}/edit/").context["form"]
    assert (form["cron"].value(), list(form["on_days"].value()), form["at_minute"].value()) == ("", [1, 5], 15)
    assert form["on_days"].as_widget().count("checked") == 2
    # Whoever wants cron has it, in place of the rest.
    own = {**chosen, "cron": "0 3 1 * *"}
    assert post(administrator_client, "export_edit", definition.pk, **own).status_code == 302
    definition.refresh_from_db()
    assert (definition.cron, definition.times_words) == ("0 3 1 * *", "")
    assert "0 3 1 * *" in page(administrator_client, "exports")
    assert post(administrator_client, "export_edit", definition.pk, **{**chosen, "at_minute": "60"}).status_code == 400
