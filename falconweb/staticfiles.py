"""Static files under names that carry their content's hash, so that browsers may keep them for ever."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.staticfiles.apps import StaticFilesConfig
from servestatic.storage import CompressedManifestStaticFilesStorage


class HashedStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # no types in the library
    """Follows `import` between ES modules too, and answers plain names where nothing was collected (tests, DEBUG)."""

    support_js_module_import_aggregation = True
    manifest_strict = False


class StaticFiles(StaticFilesConfig):
    """Leaves out what libraries bring for pages that we do not have; compressing it took most of a first start."""

    ignore_patterns: ClassVar[list[str]] = [  # type: ignore[misc]
        *StaticFilesConfig.ignore_patterns,
        "rest_framework",
        "redoc", "oauth2-redirect.*", "swagger-ui-standalone-preset.*",  # of drf_spectacular_sidecar
        "package.json", "README.md",
    ]  # fmt: skip
