"""Alerts of the site itself have no chassis."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [("alerts", "0002_alert_notification")]

    operations = [
        migrations.AlterField(
            "alert",
            "chassis",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="fabric.chassis"
            ),
        ),
        migrations.AddConstraint(
            "alert",
            models.UniqueConstraint(
                condition=~Q(state="resolved") & Q(chassis=None),
                fields=("cause", "series_key"),
                name="one_open_alert_of_the_site",
            ),
        ),
    ]
