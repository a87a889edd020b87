"""/metrics, for Prometheus."""

from __future__ import annotations

from threading import BoundedSemaphore
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.decorators import method_decorator
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.declaration import declare
from accounts.models import Area
from core.downloads import Download
from core.errors import Unavailable
from falconweb import __version__
from falconweb.api.authentication import MetricsAuthentication, SessionAuthentication
from telemetry.pipeline.exposition import CONTENT_TYPE, exposition, gzip_pieces

# Per process: a thousand chassis take seconds, and constant scraping would slow down live pages. Tenants have separate
# slots, so that they cannot block the site's own Prometheus.
MAX_CONCURRENT_READS = 2
_read_slots = {is_administrator: BoundedSemaphore(MAX_CONCURRENT_READS) for is_administrator in (True, False)}


@method_decorator(login_not_required, name="dispatch")
@declare(area=Area.TELEMETRY)
class Metrics(APIView):
    """The newest readings and the site's own metrics as text; not part of the API, whose responses are JSON."""

    authentication_classes = (SessionAuthentication, MetricsAuthentication)
    schema = None

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Use the one format whatever is requested, as Prometheus expects; problems are JSON."""
        return JSONRenderer(), JSONRenderer.media_type

    def get(self, request: Request) -> HttpResponseBase:
        """Return the metrics visible to the user; `chassis` (repeated) and `only` filter them."""
        parameters, person = request.query_params, person_of(request)
        places = _read_slots[person.is_administrator]
        if not places.acquire(blocking=False):
            raise Unavailable("The metrics are being read by others: ask again in a moment.")
        try:
            pieces = exposition(
                person,
                version=__version__,
                chassis=parameters.getlist("chassis"),
                only=parameters.get("only", ""),
            )
        finally:
            places.release()
        if is_zipped := _accepts_gzip(request):
            pieces = gzip_pieces(pieces)
        # An empty piece would end a `Download`.
        answer = Download(filter(None, pieces), content_type=CONTENT_TYPE)
        if is_zipped:
            answer["Content-Encoding"] = "gzip"
        patch_vary_headers(answer, ["Accept-Encoding"])
        return answer


def _accepts_gzip(request: Request) -> bool:
    for one in request.headers.get("Accept-Encoding", "").split(","):
        coding, _, weight = one.partition(";")
        if coding.strip().lower() == "gzip":
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
