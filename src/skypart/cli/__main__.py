"""`python -m skypart.cli` is `skypart`."""

from skypart.cli import main

if __name__ == "__main__":
    main()
