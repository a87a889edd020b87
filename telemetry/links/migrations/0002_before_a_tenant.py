"""Where counters stood when ports became a tenant's: known exactly from now on, and worked out for those of before."""

from django.db import migrations, models


def work_out(apps, schema_editor):
    """All that a counter has and the tenant's totals have not came before; one that began anew since is theirs."""
    verdicts = apps.get_model("links", "LinkVerdict").objects
    counts = apps.get_model("links", "LinkCount").objects
    for verdict in verdicts.filter(tenant__isnull=False, held_since__isnull=False).iterator():
        count = counts.filter(port=verdict.port_id).first()
        if count is None:
            continue
        own = {name: total - verdict.base.get(name, 0) for name, total in count.totals.items()}
        errors = {name: value for name, value in count.raw.items() if not name.endswith("Bytes")}
        before = {name: max(0, value - max(0, own.get(name, 0))) for name, value in errors.items()}
        verdicts.filter(pk=verdict.pk).update(before=before)


class Migration(migrations.Migration):

    dependencies = [
        ('links', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='linkverdict',
            name='before',
            field=models.JSONField(default=dict),
        ),
        migrations.RunPython(work_out, migrations.RunPython.noop, elidable=True),
    ]
