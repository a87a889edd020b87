from django.db import migrations, models


class Migration(migrations.Migration):
    """Nobody who is there already is offered the tour."""

    dependencies = [("accounts", "0082_notices_seen")]

    operations = [
        migrations.AddField("user", "tour_step", models.PositiveSmallIntegerField(default=0, editable=False)),
        migrations.AlterField("user", "tour_step", models.PositiveSmallIntegerField(default=1, editable=False)),
    ]
