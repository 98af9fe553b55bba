"""The numbers of the poison rule. Deaths are those in a row that left an answer at one and the same token."""

ALONE_FROM = 2
"""From so many deaths on, a request runs alone on its worker: the next death can be nobody else's doing."""

POISON_FROM = 3
"""With so many deaths it ends."""
