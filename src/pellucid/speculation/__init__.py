"""Guessing ahead: drafts, how long they should be, and which of their tokens are kept.

A drafter guesses what follows; the model computes all guesses in one step; the longest prefix that
it agrees with is kept, with one token more that the model itself gives (Leviathan et al. 2022).
"""
