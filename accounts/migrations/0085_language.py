"""The language of a person's pages."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The language of a person's pages."""

    dependencies = [("accounts", "0084_zone")]

    operations = [
        migrations.AddField("user", "language", models.CharField(blank=True, default="", editable=False, max_length=8)),
    ]
