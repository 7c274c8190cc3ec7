"""python -m trainproof"""

from trainproof.cli import main

if __name__ == "__main__":
    main()
