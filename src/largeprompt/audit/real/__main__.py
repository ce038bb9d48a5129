"""``python -m largeprompt.audit.real NAME ...``: fetch models and texts into the cache."""

import sys

from largeprompt.audit.real.models import SOURCES, fetched
from largeprompt.errors import LargePromptError


def main(names: list[str]) -> None:
    """Fetch what is named, or everything; one line each on the standard output: where it is."""
    try:
        for name in names or SOURCES:
            print(fetched(name, lambda line: print(line, file=sys.stderr)))
    except LargePromptError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
