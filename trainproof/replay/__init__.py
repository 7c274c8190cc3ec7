"""Training jobs, run again: is a resume exact, is a job repeatable, does a finding come back, and what caused it."""
