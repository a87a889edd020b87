"""Up to when the verdicts on a chassis' links hold: known from the next judging on."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('links', '0002_before_a_tenant'),
    ]

    operations = [
        migrations.AddField(
            model_name='watched',
            name='judged_at',
            field=models.DateTimeField(null=True),
        ),
    ]
