"""The description of the API: the OpenAPI document, the page that shows it, and the view of unknown URLs."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from django.views.decorators.http import require_GET
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.declaration import Audience, declare
from core.errors import NotFound
from core.language import SOURCE_LANGUAGE, _


@cache
def _schema_document() -> Any:
    """Return the OpenAPI document. It takes half a second to generate, and is the same for all users."""
    with translation.override(SOURCE_LANGUAGE):
        return SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]


class CachedSchemaGenerator(SchemaGenerator):
    """Returns the cached document."""

    def get_schema(self, request: Request | None = None, public: bool = False) -> Any:
        """Return the document."""
        return _schema_document()


class SchemaView(SpectacularAPIView):
    """The OpenAPI document, as YAML or JSON."""

    generator_class = CachedSchemaGenerator


@require_GET
@login_required
@declare(Audience.EVERYBODY, section=None, no_page_test="tests/browser/test_api_docs.py opens it.")
def reference(request: HttpRequest) -> HttpResponse:
    """Show every address with its parameters and answers, to try out as the signed-in person."""
    return render(request, "falconweb/api/docs.html")


class UnknownAddress(APIView):
    """Unknown addresses."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse every method, after authentication."""
        super().initial(request, *args, **kwargs)
        raise NotFound(_("There is no such address. /api/v1/docs/ lists all."))

    def get(self, request: Request) -> Response:
        """Never called; views need a method."""
        raise NotFound("There is no such address.")
