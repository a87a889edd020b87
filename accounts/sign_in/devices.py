"""The device of a session in plain words, from what its browser says of itself."""

from __future__ import annotations

import re
from typing import Final

# The first that fits: browsers name others too, so that old sites serve them.
BROWSERS: Final = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("SamsungBrowser/", "Samsung Internet"), ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"), ("CriOS/", "Chrome"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
SYSTEMS: Final = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("CrOS", "ChromeOS"), ("Windows", "Windows"),
    ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def device_words(user_agent: str) -> str:
    """Return 'Firefox on Linux'; the name of a program such as curl; '' for an empty header."""
    browser = next((words for part, words in BROWSERS if part in user_agent), "")
    system = next((words for part, words in SYSTEMS if part in user_agent), "")
    if browser:
        return f"{browser} on {system}" if system else browser
    program = re.match(r"[\w.-]{1,60}", user_agent, re.ASCII)
    return program[0] if program else ""
