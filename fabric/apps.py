"""The room's Django application."""

from django.apps import AppConfig


class FabricConfig(AppConfig):
    """Chassis, drawers, slots, devices, ports and hosts."""

    name = "fabric"

    def ready(self) -> None:
        """Connect the receivers of signals of lower features and of the room below."""
        import fabric.drift.approvals
        import fabric.failures.services
        import fabric.leases.emails
        import fabric.leases.lifecycle
        import fabric.leases.ownership
        import fabric.leases.selectors  # noqa: F401 - imported for their receivers
        from fabric.failures.selectors import failure_problems
        from fabric.topology.problems import register_problem_source

        register_problem_source(failure_problems)
