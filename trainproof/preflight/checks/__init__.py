"""The checks before training. A check is a function over what was found, registered as the rules are; its docstring is its page."""
