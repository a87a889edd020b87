import django.db.models.deletion
from django.db import migrations, models


def carry_over(apps, schema_editor):
    """Keep what is known of each chassis, and whose operations were."""
    Chassis, Walk = apps.get_model("fabric", "Chassis"), apps.get_model("fabric", "Walk")
    for chassis in Chassis.objects.exclude(inventory={}).iterator(chunk_size=20):
        Walk.objects.create(chassis=chassis, found=chassis.inventory)
    User, Operation = apps.get_model("accounts", "User"), apps.get_model("fabric", "Operation")
    tenant = User.objects.filter(pk=models.OuterRef("requested_by")).values("tenant")
    Operation.objects.update(tenant=models.Subquery(tenant))


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_initial"),
        ("fabric", "0002_tenant_since"),
    ]

    operations = [
        migrations.CreateModel(
            name="Walk",
            fields=[
                (
                    "chassis",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="fabric.chassis",
                    ),
                ),
                ("found", models.JSONField(default=dict)),
            ],
        ),
        migrations.AddField(
            model_name="operation",
            name="tenant",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="operations",
                to="accounts.tenant",
            ),
        ),
        migrations.RunPython(carry_over, migrations.RunPython.noop, elidable=True),
        migrations.RemoveField(model_name="chassis", name="inventory"),
    ]
