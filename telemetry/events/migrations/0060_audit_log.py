from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('events', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='event',
            name='source',
            field=models.CharField(choices=[('bmc', 'BMC'), ('operation', 'Operation'), ('alert', 'Alert'), ('sign_in', 'Sign-in'), ('site', 'Site'), ('audit', 'Audit log')], max_length=10),
        ),
    ]
