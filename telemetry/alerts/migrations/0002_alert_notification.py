from django.db import migrations, models
from django.db.models.deletion import CASCADE


class Migration(migrations.Migration):

    dependencies = [("alerts", "0001_initial")]

    operations = [
        migrations.RenameModel("Told", "AlertNotification"),
        migrations.RemoveConstraint("alertnotification", "told_once_a_route_and_alert"),
        migrations.AddConstraint(
            "alertnotification",
            models.UniqueConstraint(fields=("route", "alert"), name="alert_notified_once_by_route"),
        ),
        *(
            migrations.AlterField(
                "alertnotification",
                name,
                models.ForeignKey(to=f"alerts.{to}", related_name=related, on_delete=CASCADE, null=name == "resolved_in"),
            )
            for name, to, related in [
                ("route", "route", "notifications"),
                ("alert", "alert", "notifications"),
                ("fired_in", "delivery", "notifications_fired"),
                ("resolved_in", "delivery", "notifications_resolved"),
            ]
        ),
    ]
