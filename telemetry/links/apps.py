"""The room's Django application."""

from django.apps import AppConfig


class LinksConfig(AppConfig):
    """The health of PCIe links: their errors, their states, and a verdict with its reasons."""

    name = "telemetry.links"
    label = "links"

    def ready(self) -> None:
        """Listen to other rooms, and tell the overview what is wrong with links."""
        import telemetry.links.receivers  # noqa: F401 - imported for its receivers
        from fabric.overview import tell_of
        from telemetry.links.selectors import link_troubles

        tell_of(link_troubles)
