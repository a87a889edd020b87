"""Numbers on German pages: as on English ones, in charts, in files and in the API, so that they can be copied."""

DECIMAL_SEPARATOR = "."
THOUSAND_SEPARATOR = ","
