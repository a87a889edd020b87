"""Problem documents where no view of the API was reached: under its addresses nobody is answered with a page."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from falconweb.api.authentication import SAFE_METHODS
from falconweb.api.problems import CONTENT_TYPE, OURS, PREFIX, new_reference, problem_document

logger = logging.getLogger(__name__)
SENTENCES = {
    400: ("invalid", "This request cannot be read."),
    403: ("forbidden", "You may not do this."),
    404: ("not_found", "There is no such address. /api/v1/docs/ lists all."),
    405: ("method_not_allowed", "This address has no such method."),
    429: ("throttled", "Too many requests. Try again later."),
    503: ("unavailable", "A part of the site does not answer. Try again later."),
}


class ProblemMiddleware:
    """Puts a problem in the place of what Django itself answers: unknown addresses and hosts, errors of middlewares."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on, and look at the answer."""
        answer = self.get_response(request)
        if not request.path.startswith(PREFIX) or answer.get("Content-Type") == CONTENT_TYPE:
            return answer
        if answer.status_code == 301 and request.method not in SAFE_METHODS and not request.path.endswith("/"):
            # Django sends such a request on to the address with the slash, where it would arrive as a GET.
            del answer["Location"]
            return self._say(answer, 404, "not_found", "There is no such address: addresses end in a slash.")
        if answer.status_code < 400:
            return answer
        if answer.status_code >= 500 and answer.status_code not in SENTENCES:
            reference = new_reference()
            # Django wrote the traceback just before.
            logger.error("The error before this line has the reference %s", reference)
            return self._say(answer, answer.status_code, "internal", OURS, reference=reference)
        code, sentence = SENTENCES.get(answer.status_code, ("error", "This request cannot be answered."))
        return self._say(answer, answer.status_code, code, sentence)

    def _say(self, answer: HttpResponse, status: int, code: str, sentence: str, **details: str) -> HttpResponse:
        document = problem_document(status, sentence, code, **details)
        answer.status_code = status
        answer.content = json.dumps(document).encode()
        answer["Content-Type"] = CONTENT_TYPE
        answer["Content-Length"] = str(len(answer.content))
        return answer
