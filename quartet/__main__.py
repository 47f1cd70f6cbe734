"""`python -m quartet` is the `quartet` command."""

from quartet.cli import main

if __name__ == "__main__":
    main()
