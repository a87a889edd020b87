import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def panels_from_pins(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Give each pinned view, by then a dashboard, its one panel."""
    pins = apps.get_model("history", "Dashboard").objects.values_list("pk", "name", "query")
    panel = apps.get_model("history", "DashboardPanel")
    panel.objects.bulk_create(
        panel(dashboard_id=pk, title=name, query=query, position=1) for pk, name, query in pins.iterator()
    )


class Migration(migrations.Migration):

    dependencies = [
        ('history', '0001_dashboards'),
    ]

    operations = [
        migrations.AddField(
            model_name='dashboard',
            name='shared',
            field=models.BooleanField(default=False),
        ),
        migrations.CreateModel(
            name='DashboardPanel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('title', models.CharField(max_length=80)),
                ('query', models.CharField(max_length=2000)),
                ('follows', models.BooleanField(default=False)),
                ('position', models.PositiveIntegerField(default=0)),
                ('dashboard', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='panels', to='history.dashboard')),
            ],
            options={
                'ordering': ['position', 'pk'],
            },
        ),
        migrations.RunPython(panels_from_pins, migrations.RunPython.noop),
    ]
