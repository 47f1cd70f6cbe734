"""The `quartet` command, as `python -m quartet`."""

from quartet.cli import main

if __name__ == "__main__":
    main()
