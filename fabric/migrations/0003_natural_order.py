from django.db import migrations
from django.db.models.functions import Collate


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0081_natural_order"),
        ("fabric", "0002_port_errors_reset_at"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="chassis", options={"ordering": [Collate("name", "natural")], "verbose_name_plural": "chassis"}
        ),
        migrations.AlterModelOptions(name="host", options={"ordering": [Collate("name", "natural")]}),
    ]
