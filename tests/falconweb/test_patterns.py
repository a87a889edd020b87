"""Every component is shown on the patterns page, which is there in DEBUG alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.template.loader import get_template
from django.test import Client
from django.urls import path, reverse

from accounts.models import Role, User
from falconweb import urls
from falconweb.navigation import addresses
from falconweb.patterns import patterns
from falconweb.templatetags.components import register
from tests.access.lab import Lab, lab, made_lab
from tests.access.test_matrix import methods_of
from tests.access.test_matrix_writes import fields_of
from tests.pages import page_text

__all__ = ["lab", "made_lab"]

# What a site has in DEBUG.
urlpatterns = [*urls.urlpatterns, path("patterns/", patterns, name="patterns")]
TEMPLATES = Path(settings.BASE_DIR) / "templates"


@pytest.fixture
def page(client: Client, db: None, settings: Any) -> str:
    """The page as a person sees it who is signed in."""
    settings.ROOT_URLCONF = __name__
    client.force_login(User.objects.create_user("ada", role=Role.ADMINISTRATOR))
    answer = client.get("/patterns/")
    assert answer.status_code == 200
    return page_text(answer)


@pytest.mark.django_db
def test_there_is_no_such_page_outside_of_debug(client: Client) -> None:
    client.force_login(User.objects.create_user("ada", role=Role.ADMINISTRATOR))
    assert client.get("/patterns/").status_code == 404


def test_every_component_is_on_the_page() -> None:
    source = (TEMPLATES / "falconweb/patterns.html").read_text()
    shown = re.sub(r"\{% verbatim %\}.*?\{% endverbatim %\}", "", source)
    assert [tag for tag in register.tags if f"{{% {tag} " not in shown] == []


def test_every_template_of_a_component_is_used_by_its_tag() -> None:
    rendered = (Path(__file__).parents[2] / "falconweb/templatetags/components.py").read_text()
    names = sorted(file.relative_to(TEMPLATES).as_posix() for file in (TEMPLATES / "components").iterdir())
    assert [name for name in names if f'"{name}"' not in rendered] == []
    assert all(get_template(name) for name in names)


def test_numbers_sorting_and_choices_are_said_to_readers_of_the_screen(page: str) -> None:
    assert '<th scope="col" class="number">Errors</th>' in page
    assert '<th scope="col" class="number" aria-sort="descending"> <a href="?sort=speed">Speed</a> </th>' in page
    assert 'aria-sort="ascending"' in page
    assert '<option value="running" selected>Running</option>' in page
    assert 'aria-describedby="sample-errors"' in page
    assert 'aria-label="Sign out everywhere"' in page


def test_what_is_given_to_a_component_is_text(page: str) -> None:
    assert "<h2>No exports yet</h2>" in page
    assert page.count('<p class="notice error" role="alert">The two do not match.</p>') == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "column"),
    [("runs:runs", "title"), ("sweeps:sweeps", "title"), ("sweeps:sweep", "state"), ("exports:exports", "name")],
)
def test_a_second_choice_of_a_column_sorts_the_other_way(lab: Lab, name: str, column: str) -> None:
    where = reverse(name, args=lab.arguments.get(name.rpartition(":")[2], []))
    shown = page_text(lab.clients["administrator"].get(where, {"sort": column}))
    assert 'aria-sort="ascending"' in shown
    assert f'href="?sort=-{column}"' in shown


def curl_commands() -> list[tuple[str, str, list[str]]]:
    """Return each command that a template copies: its method, its view and the fields of its body."""
    found = []
    for file in TEMPLATES.rglob("*.html"):
        text = file.read_text()
        for method, view, rest in re.findall(r'\{% copy_curl "(\w+)" "(\w+)" ?([^%]*)%\}', text):
            same = " ".join(re.findall(r'\bsame="([^"]*)"', text if "same=same" in rest else rest)).split()
            found.append((method, view, [one for one in re.findall(r"(\w+)=", rest) if one not in NO_FIELDS] + same))
        found += [("POST", view, []) for view in re.findall(r'\bapi="(\w+)"', text)]
    return found


NO_FIELDS = {"same", "act"}
SECRET = re.compile("password|secret|token|csrf")


def test_each_curl_command_is_one_that_the_api_takes() -> None:
    commands = curl_commands()
    assert len(commands) > 60
    assert len(commands) == sum(
        len(re.findall(r"\{% copy_curl |\bapi=\"", file.read_text())) for file in TEMPLATES.rglob("*.html")
    )
    for method, view, fields in commands:
        route = addresses()[f"api:{view}"].route
        assert method in methods_of(addresses()[f"api:{view}"].callback), view
        assert set(fields) <= fields_of(route, method), view
        assert not SECRET.search(" ".join(fields)), view
