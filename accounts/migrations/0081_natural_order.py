from django.contrib.postgres.operations import CreateCollation
from django.db import migrations
from django.db.models.functions import Collate


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0080_identity_providers"),
    ]

    operations = [
        # SQLite has the collation of falconweb.sqlite.
        CreateCollation("natural", provider="icu", locale="und-u-kn-true"),
        migrations.AlterModelOptions(name="tenant", options={"ordering": [Collate("name", "natural")]}),
    ]
