import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0001_initial'),
        ('sweeps', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='run',
            name='sweep',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='sweeps.sweep'),
        ),
    ]
