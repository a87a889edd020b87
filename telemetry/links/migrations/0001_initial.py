import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0003_metrics'),
        ('fabric', '0007_identities_and_turns'),
    ]

    operations = [
        migrations.CreateModel(
            name='LinkCount',
            fields=[
                ('port', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='link_count', serialize=False, to='fabric.port')),
                ('watched_since', models.DateTimeField()),
                ('raw', models.JSONField(default=dict)),
                ('totals', models.JSONField(default=dict)),
                ('counted_at', models.DateTimeField(null=True)),
                ('reset_at', models.DateTimeField(null=True)),
                ('status', models.CharField(blank=True, max_length=30)),
                ('width', models.PositiveIntegerField(null=True)),
                ('speed_gbps', models.FloatField(null=True)),
                ('state_since', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Watched',
            fields=[
                ('chassis', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='fabric.chassis')),
                ('seen_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='CounterReset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('not_before', models.DateTimeField(null=True)),
                ('how', models.CharField(choices=[('asked', 'asked for here'), ('bmc', 'by the BMC'), ('reboot', 'the BMC restarted')], max_length=10)),
                ('person_name', models.CharField(blank=True, max_length=150)),
                ('counted', models.JSONField(default=dict)),
                ('seen', models.BooleanField(default=False)),
                ('port', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='counter_resets', to='fabric.port')),
            ],
            options={
                'ordering': ['-at', '-pk'],
                'indexes': [models.Index(fields=['port', '-at'], name='counter_reset_at')],
            },
        ),
        migrations.CreateModel(
            name='LinkMinute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('minute', models.DateTimeField()),
                ('counts', models.JSONField(default=dict)),
                ('port', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='link_minutes', to='fabric.port')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('port', 'minute'), name='link_minute')],
            },
        ),
        migrations.CreateModel(
            name='LinkSpan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField(null=True)),
                ('status', models.CharField(blank=True, max_length=30)),
                ('width', models.PositiveIntegerField(null=True)),
                ('speed_gbps', models.FloatField(null=True)),
                ('asked', models.BooleanField(default=False)),
                ('drops', models.PositiveIntegerField(default=0)),
                ('port', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='link_spans', to='fabric.port')),
            ],
            options={
                'ordering': ['-since', '-pk'],
                'indexes': [models.Index(fields=['port', '-since'], name='link_span_since')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('until', None)), fields=('port',), name='link_span_open')],
            },
        ),
        migrations.CreateModel(
            name='LinkVerdict',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('held_since', models.DateTimeField(null=True)),
                ('base', models.JSONField(default=dict)),
                ('level', models.CharField(choices=[('healthy', 'healthy'), ('unknown', 'unknown'), ('watch', 'watch'), ('degraded', 'degraded'), ('failing', 'failing'), ('down', 'down')], max_length=10)),
                ('rank', models.PositiveSmallIntegerField()),
                ('since', models.DateTimeField()),
                ('judged_at', models.DateTimeField()),
                ('reasons', models.JSONField(default=list)),
                ('sent_rate', models.FloatField(default=0.0)),
                ('received_rate', models.FloatField(default=0.0)),
                ('correctable_rate', models.FloatField(default=0.0)),
                ('flaps', models.PositiveIntegerField(default=0)),
                ('recoveries', models.PositiveIntegerField(default=0)),
                ('errors', models.PositiveBigIntegerField(default=0)),
                ('port', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='link_verdicts', to='fabric.port')),
                ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', '-rank'], name='link_verdict_worst')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('tenant', None)), fields=('port',), name='link_verdict_of_all'), models.UniqueConstraint(fields=('port', 'tenant'), name='link_verdict_of_tenant')],
            },
        ),
    ]
