"""The experiments of tools/bench: each module is one, or a family; common.py has the code that they share."""
