"""pi sessions in an editor: compaction, branches and context usage, over LSP or as a library."""

__version__ = "0.1.0"
