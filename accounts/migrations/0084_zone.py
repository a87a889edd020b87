from django.db import migrations, models


class Migration(migrations.Migration):
    """The zone of a person's times."""

    dependencies = [("accounts", "0083_tour_step")]

    operations = [
        migrations.AddField("user", "zone", models.CharField(blank=True, default="", editable=False, max_length=64)),
    ]
