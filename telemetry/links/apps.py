"""The Django application of links."""

from django.apps import AppConfig


class LinksConfig(AppConfig):
    name = "telemetry.links"
    label = "links"

    def ready(self) -> None:
        import telemetry.links.receivers  # noqa: F401 - imported for its receivers
        from fabric.inventory.selectors import register_counter_baseline
        from fabric.topology.problems import register_problem_source
        from telemetry.links.selectors import link_problems, tenant_baselines

        register_problem_source(link_problems)
        register_counter_baseline(tenant_baselines)
