from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_audit")]

    operations = [
        migrations.AlterField(
            model_name="token",
            name="scope",
            field=models.CharField(
                choices=[
                    ("read", "Read"),
                    ("write", "Read and write"),
                    ("metrics", "Read /metrics, nothing else"),
                ],
                default="read",
                max_length=10,
            ),
        ),
    ]
