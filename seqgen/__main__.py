"""`python -m seqgen` is `seqgen`."""

from seqgen.cli import main

if __name__ == "__main__":
    main()
