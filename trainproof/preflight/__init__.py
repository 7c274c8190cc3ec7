"""Checks before training: data, tokenizer, objective, environment."""
