"""Pages in the reader's language: chosen, or accepted by the browser; programs get English."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import translation

from accounts.models import User
from core.downloads import csv_table
from core.language import _, english, joined
from fabric.operations.models import Operation
from falconweb.texts import texts_version

pytestmark = pytest.mark.django_db


def test_pages_are_in_the_language_that_the_browser_accepts(admin_client: Client) -> None:
    page = admin_client.get("/account/", headers={"accept-language": "de-CH,en;q=0.5"})
    assert page.headers["Content-Language"] == "de"
    assert '<html lang="de"' in page.text
    assert "Sprache" in page.text


def test_the_chosen_language_comes_before_that_of_the_browser(admin_client: Client, admin_user: User) -> None:
    admin_client.post("/account/locale/", {"language": "en", "zone": ""})
    admin_user.refresh_from_db()
    assert admin_user.language == "en"
    assert '<html lang="en"' in admin_client.get("/account/", headers={"accept-language": "de"}).text


def test_an_unknown_language_is_refused(admin_client: Client, admin_user: User) -> None:
    page = admin_client.post("/account/locale/", {"language": "xx", "zone": ""}, follow=True)
    assert "There is no such language." in page.text
    admin_user.refresh_from_db()
    assert admin_user.language == ""


def test_programs_get_english(client: Client) -> None:
    answer = client.get("/api/v1/chassis/", headers={"accept-language": "de"})
    assert answer.headers["Content-Language"] == "en"


def test_a_sentence_keeps_its_english_with_that_of_its_values() -> None:
    with translation.override("de"):
        row = Operation(state=Operation.State.FAILED)
        sentence = _("It has ended already: {state}.", state=_(row.get_state_display()))
        assert sentence == "Er ist bereits beendet: Fehlgeschlagen."
        assert english(sentence) == "It has ended already: Failed."
        names = joined([_("device"), _("host port")], _(" or "))
        assert (names, names.english) == ("Gerät oder Host-Port", "device or host port")
        assert list(csv_table([_("Temperature")], [[row.get_state_display()]])) == ["Temperature\r\n", "Failed\r\n"]


def test_texts_of_scripts_are_kept_only_where_they_are_what_the_address_names(client: Client) -> None:
    page = client.get("/login/", headers={"accept-language": "de"}).text
    address = f"/texts.js?language=de&amp;version={texts_version()}"
    assert address in page
    answer = client.get(address.replace("&amp;", "&"), headers={"accept-language": "en"})
    assert answer.headers["Content-Language"] == "de"
    assert "immutable" in answer.headers["Cache-Control"]
    assert "Dateien" in answer.text
    for other in ("language=de&version=older", "language=xx/../en&version=", "language=de", ""):
        answer = client.get(f"/texts.js?{other}")
        assert answer.status_code == 200
        assert "immutable" not in answer.headers.get("Cache-Control", "")
