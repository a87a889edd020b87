from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0002_dashboard_panels'),
    ]

    operations = [
        # By a step of its own: PostgreSQL alters no table whose rows wait for their constraints.
        migrations.RemoveField(
            model_name='dashboard',
            name='query',
        ),
    ]
