"""Static files with content hashes in their names, so that browsers may cache them indefinitely."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.staticfiles.apps import StaticFilesConfig
from servestatic.storage import CompressedManifestStaticFilesStorage


class HashedStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # no types in the library
    """Rewrites `import` between ES modules too, and returns plain names without collected files (tests, DEBUG)."""

    support_js_module_import_aggregation = True
    manifest_strict = False

    def load_manifest(self) -> tuple[dict[str, str], str]:
        """Return the names of the collected files: none where the list of them is damaged, until it is made anew."""
        try:
            names: tuple[dict[str, str], str] = super().load_manifest()
        except (OSError, ValueError, AttributeError):
            return {}, ""
        return names


class StaticFiles(StaticFilesConfig):
    """Omits files of libraries for pages that the site does not have; compressing them took most of a first start."""

    ignore_patterns: ClassVar[list[str]] = [  # type: ignore[misc]
        *StaticFilesConfig.ignore_patterns,
        "rest_framework",
        "redoc", "oauth2-redirect.*", "swagger-ui-standalone-preset.*",  # of drf_spectacular_sidecar
        "package.json", "README.md",
    ]  # fmt: skip
