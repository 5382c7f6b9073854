from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0012_observed_person")]

    operations = [
        # Choices are of the code alone, which knows the kinds: a new one needs no migration.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name="observedobject", name="kind", field=models.CharField(max_length=63)
                )
            ]
        )
    ]
