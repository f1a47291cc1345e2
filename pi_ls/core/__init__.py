"""The pure core: entries → tree path → context → preparation, as functions of values.

Nothing below this package reads a file, asks the clock, awaits, or knows LSP or a model library. What a
core function needs from outside (a token counter, new ids, the time) is an argument.
"""
