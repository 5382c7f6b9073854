#!/usr/bin/env python
"""Command line of the portal: `python manage.py help`."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, OperationalError

    try:
        execute_from_command_line(sys.argv)
    except (InterfaceError, OperationalError) as error:
        if "--traceback" in sys.argv:
            raise
        told = " ".join(str(error).split()).rstrip(".?")
        sys.exit(
            f"The database does not answer: {told}. Start it or mend DATABASE_URL, then run the "
            "same again."
        )


if __name__ == "__main__":
    main()
