"""The models of all features, imported for Django's app registry; other code imports them from the feature."""

from fabric.agents import models as agents
from fabric.drift import models as drift
from fabric.failures import models as failures
from fabric.history import models as history
from fabric.inventory import models as inventory
from fabric.leases import models as leases
from fabric.maintenance import models as maintenance
from fabric.operations import models as operations

__all__ = ["agents", "drift", "failures", "history", "inventory", "leases", "maintenance", "operations"]
