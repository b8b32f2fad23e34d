"""`python -m sprii_train` is `sprii`."""

from sprii_train.cli import main

if __name__ == "__main__":
    main()
