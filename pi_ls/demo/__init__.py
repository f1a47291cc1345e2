"""What a visitor sees first: a session in an editor, and an agent at work in one.

stage.py     what both have in common
session.py   `pi-ls demo`: meter, branch summary, compaction and tree of a bundled session
agent.py     `pi-ls demo --agent`: a run that reads, edits, tests and makes room for itself
model.py     the model of that run: a script behind an address on loopback
"""
