"""Text for people: numbers, durations, tables, and the words for trials and errors.

Every room above `holdfast.trial` may import it.
"""
