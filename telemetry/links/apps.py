"""The room's Django application."""

from django.apps import AppConfig


class LinksConfig(AppConfig):
    """The health of PCIe links: their errors, their states, and a verdict with its reasons."""

    name = "telemetry.links"
    label = "links"

    def ready(self) -> None:
        """Listen to other rooms, and tell others what is wrong with links, and where counters stood."""
        import telemetry.links.receivers  # noqa: F401 - imported for its receivers
        from fabric.counted import tell_counted
        from fabric.overview import tell_of
        from telemetry.links.selectors import counted_at_begin, link_troubles

        tell_of(link_troubles)
        tell_counted(counted_at_begin)
