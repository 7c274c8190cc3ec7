"""Callbacks of training frameworks: each imports its own framework, and nothing else does."""
