"""The texts of scripts in the reader's language."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from accounts.declaration import NO_PAGE, Audience, declare


@method_decorator(cache_control(private=True, max_age=31_536_000), name="dispatch")
@declare(Audience.PUBLIC, no_page_test=NO_PAGE, section=None)
class Texts(JavaScriptCatalog):
    """The catalogue for site/language.js; pages ask for it by `texts_version`, and in English not at all."""

    packages: list[str] | None = []  # the site's own, not Django's


@cache
def texts_version() -> int:
    """Return when the catalogues of this start were compiled, in seconds since 1970."""
    files = [file for folder in settings.LOCALE_PATHS for file in folder.rglob("djangojs.mo")]
    return max((int(file.stat().st_mtime) for file in files), default=0)
