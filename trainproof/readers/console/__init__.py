"""Console output of trainers, wherever it was captured: one module a format, over one engine.

A format is a class with a name, a description and its kinds of record line (`line.Line`); `engine.ConsoleReader` does the rest.
"""
