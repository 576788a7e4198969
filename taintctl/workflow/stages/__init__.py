"""One file a phase: what a run does there, and when it leaves."""
