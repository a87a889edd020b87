from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fabric', '0004_saved_filter'),
    ]

    operations = [
        migrations.AddField(
            model_name='chassis',
            name='shares_uuid',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='device',
            name='other_host_ports',
            field=models.ManyToManyField(editable=False, related_name='other_devices', to='fabric.hostport'),
        ),
        migrations.AddField(
            model_name='port',
            name='far_end',
            field=models.CharField(blank=True, max_length=200),
        ),
    ]
