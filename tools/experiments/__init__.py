"""The experiments of tools/bench: each module is one, or a family; common.py is what they share."""
