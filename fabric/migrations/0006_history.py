import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fabric", "0005_leases"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="device",
            name="approved_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="device",
            name="approved_host_port",
            field=models.ForeignKey(
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="fabric.hostport",
            ),
        ),
        migrations.AddField(
            model_name="drawer",
            name="approved_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="drawer",
            name="approved_mode",
            field=models.CharField(blank=True, editable=False, max_length=30),
        ),
        migrations.AddField(
            model_name="hostport",
            name="approved_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="hostport",
            name="approved_host",
            field=models.ForeignKey(
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="fabric.host",
            ),
        ),
        migrations.AddField(
            model_name="port",
            name="approved_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="port",
            name="approved_type",
            field=models.CharField(blank=True, editable=False, max_length=50),
        ),
        migrations.AddField(
            model_name="port",
            name="approved_width",
            field=models.PositiveIntegerField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name="Attachment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("device_name", models.CharField(max_length=200)),
                ("serial_number", models.CharField(blank=True, max_length=200)),
                ("slot_name", models.CharField(blank=True, max_length=200)),
                ("host_port_label", models.CharField(blank=True, max_length=50)),
                ("host_name", models.CharField(blank=True, max_length=200)),
                ("tenant_name", models.CharField(blank=True, max_length=100)),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField(null=True)),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("operation", "an operation"),
                            ("outside", "outside FalconWeb"),
                            ("found", "found there"),
                            ("grant", "another tenant"),
                            ("swap", "another device"),
                            ("missing", "missing"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "ending",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("operation", "an operation"),
                            ("outside", "outside FalconWeb"),
                            ("found", "found there"),
                            ("grant", "another tenant"),
                            ("swap", "another device"),
                            ("missing", "missing"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "begun_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="attachments_begun",
                        to="fabric.operation",
                    ),
                ),
                (
                    "chassis",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="attachments", to="fabric.chassis"
                    ),
                ),
                (
                    "device",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="attachments", to="fabric.device"
                    ),
                ),
                (
                    "ended_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="attachments_ended",
                        to="fabric.operation",
                    ),
                ),
                (
                    "host_port",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="attachments",
                        to="fabric.hostport",
                    ),
                ),
                (
                    "slot",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="attachments",
                        to="fabric.slot",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="attachments",
                        to="accounts.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["-since", "-pk"],
                "indexes": [models.Index(fields=["slot", "-since"], name="fabric_atta_slot_id_e3ec6f_idx")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("until", None)), fields=("device",), name="one_open_attachment_a_device"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Drift",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("attachment", "Attachment"),
                            ("device", "Device"),
                            ("mode", "Mode"),
                            ("cable", "Cable"),
                            ("port", "Port"),
                        ],
                        max_length=12,
                    ),
                ),
                ("uri", models.CharField(max_length=400)),
                ("what", models.CharField(max_length=300)),
                ("expected", models.CharField(blank=True, max_length=450)),
                ("expected_words", models.CharField(blank=True, max_length=450)),
                ("found", models.CharField(blank=True, max_length=450)),
                ("found_words", models.CharField(blank=True, max_length=450)),
                ("not_before", models.DateTimeField(null=True)),
                ("noticed_at", models.DateTimeField()),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("operation", "An operation left it so"),
                            ("log", "The BMC's log tells"),
                            ("unknown", "Not known"),
                        ],
                        default="unknown",
                        max_length=10,
                    ),
                ),
                ("log_asked_at", models.DateTimeField(null=True)),
                ("originator", models.CharField(blank=True, max_length=150)),
                ("origin_address", models.CharField(blank=True, max_length=150)),
                ("log_message", models.CharField(blank=True, max_length=500)),
                ("changed_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "end",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("accepted", "Accepted"),
                            ("re_applied", "Re-applied"),
                            ("went_away", "Went away"),
                            ("superseded", "Superseded"),
                        ],
                        max_length=12,
                    ),
                ),
                ("ended_by_name", models.CharField(blank=True, max_length=150)),
                (
                    "chassis",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drifts", to="fabric.chassis"
                    ),
                ),
                (
                    "device",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drifts",
                        to="fabric.device",
                    ),
                ),
                (
                    "drawer",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drifts",
                        to="fabric.drawer",
                    ),
                ),
                (
                    "ended_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "ended_in",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="fabric.operation"
                    ),
                ),
                (
                    "host_port",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drifts",
                        to="fabric.hostport",
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="drifts",
                        to="fabric.operation",
                    ),
                ),
                (
                    "port",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="drifts", to="fabric.port"
                    ),
                ),
            ],
            options={
                "ordering": ["-noticed_at", "-pk"],
                "indexes": [models.Index(fields=["chassis", "ended_at"], name="fabric_drif_chassis_52c2bf_idx")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("chassis", "kind", "uri"),
                        name="one_open_drift_a_part",
                    )
                ],
            },
        ),
    ]
