"""Texts that an answer quotes, and code to be written: what speculation is measured on."""

from __future__ import annotations

_LETTER = (
    "Dear Ms. Alder, thank you for your letter of the third of May. We have looked at the roof of "
    "the boat house and found that eleven tiles are broken and that the gutter on the north side "
    "has come loose. Our men can begin on Monday the twentieth, if the weather holds, and will "
    "need four days. The price of the work, tiles and a new gutter included, comes to one thousand "
    "two hundred and forty pounds. Please let us know whether that suits you. Yours, J. Fenwick."
)
_CODE = """\
class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()

    def peek(self):
        return self.items[-1]

    def is_empty(self):
        return len(self.items) == 0

    def size(self):
        return len(self.items)
"""
_REPORT = (
    "The committee met on Tuesday in the old town hall. It heard that the bridge over the Tarn had "
    "been closed since the flood in March and that repairs would cost three million euros. The "
    "mayor said that the region would pay one half. Two members asked for a ferry until the bridge "
    "is open again. The committee agreed to hire a ferry for six months and to meet again in June."
)
_TABLE = (
    "name,city,born\nAda Moss,Leeds,1951\nBjorn Dahl,Bergen,1948\nCarla Neri,Pisa,1960\n"
    "Dimitri Ilin,Kazan,1939\nElif Aydin,Izmir,1972\nFelix Brandt,Lubeck,1966\n"
)

# Edits and summaries: much of each answer stands in its prompt.
QUOTING = {
    "repeat": f"Repeat this letter word for word:\n\n{_LETTER}",
    "edit letter": f"Change the price to nine hundred pounds; write the whole letter:\n\n{_LETTER}",
    "edit code": f"Rename the method peek to top; write the whole class:\n\n```python\n{_CODE}```",
    "document": f"Write the whole class, a comment above each method:\n\n```python\n{_CODE}```",
    "summarise": f"Summarise this report in its own words and sentences:\n\n{_REPORT}",
    "table to JSON": f"Write these rows as a JSON list of objects:\n\n{_TABLE}",
}

CODE = {
    "fibonacci": "Write a Python function that returns the n-th Fibonacci number.",
    "primes": "Write a Python function that lists all primes below n with a sieve.",
    "binary search": "Write a Python function for binary search in a sorted list.",
    "queue": "Write a Python class for a queue made of two stacks.",
    "csv": "Write a Python function that reads a CSV file and returns the sum of one column.",
    "tree": "Write a Python class for a binary search tree with insert and contains.",
    "retry": "Write a Python decorator that retries a function up to three times.",
    "merge": "Write a Python function that merges two sorted lists into one.",
    "words": "Write a Python function that counts how often each word stands in a text.",
    "matrix": "Write a Python function that multiplies two matrices given as lists of lists.",
}

TASKS = {"quoting": QUOTING, "code": CODE}
