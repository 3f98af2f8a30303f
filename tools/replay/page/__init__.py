"""The page of a replay: one file of HTML and SVG that needs no script and nothing from elsewhere.

`page` says what is on it, `plots` draws, `axes` has scales and ticks, `markup` writes elements.
None of them computes a figure: those come from `figures`, `comparison` and `curves`.
"""
