"""Text for people: numbers, durations, tables, and the words for trials and errors.

Every room may import it. It imports nothing above `holdfast.trial`.
"""
