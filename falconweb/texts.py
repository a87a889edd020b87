"""The texts of scripts in the reader's language."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.views.i18n import JavaScriptCatalog

from accounts.declaration import NO_PAGE, Audience, declare


@declare(Audience.PUBLIC, no_page_test=NO_PAGE, section=None)
class Texts(JavaScriptCatalog):
    """The catalogue of a `language` for site/language.js; pages ask for it by `version`, and in English not at all."""

    packages: list[str] | None = []  # the site's own, not Django's

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Send it, to be kept where it is what the address names: a page may be of a process with other texts."""
        language = request.GET.get("language", "")
        is_known = language in dict(settings.LANGUAGES)
        with translation.override(language if is_known else translation.get_language()):
            answer = super().get(request, *args, **kwargs)
            answer["Content-Language"] = translation.get_language()
        if is_known and request.GET.get("version") == texts_version():
            answer["Cache-Control"] = "private, max-age=31536000, immutable"
        return answer


@cache
def texts_version() -> str:
    """Return what names the catalogues that this process has."""
    files = sorted(file for folder in settings.LOCALE_PATHS for file in folder.rglob("djangojs.mo"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
