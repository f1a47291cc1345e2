"""Session files on disk: the only code that opens them.

    places.py       where files lie and what they are called; ids
    file.py         one session's file: reading, appending, noticing what others do, rewriting
    rewriting.py    a file that takes another one's place
    following.py    noticing that somebody else wrote
    late.py         lines that reach a file which has just been replaced
    archive.py      lines that were taken out of a session
    loading.py      a session for who only reads
    listing.py      what sessions there are; a part of one as a new file

Opening, listing and looking change no byte. Files are pi's own and other programs may write them at any
time, so nothing that was read is believed without a look at the file's identity, size and last bytes, and
no file is mapped into memory (others truncate in place). Everything is synchronous; `SessionFile.open`,
`sync`, `rewrite`, `fork` and `list_sessions` take their time and belong in a thread. Source: pi's session
manager.
"""

from pi_ls.core.lines import FileProblem, Totals
from pi_ls.store.archive import put_away, put_away_lines
from pi_ls.store.file import Changes, Opened, SessionFile
from pi_ls.store.following import Follower
from pi_ls.store.listing import SessionSummary, find_session, fork, list_sessions
from pi_ls.store.loading import LoadedSession, load_session
from pi_ls.store.places import encode_cwd, new_session_path, session_directories, sessions_directory, uuid7

__all__ = [
    "Changes",
    "FileProblem",
    "Follower",
    "LoadedSession",
    "Opened",
    "SessionFile",
    "SessionSummary",
    "Totals",
    "encode_cwd",
    "find_session",
    "fork",
    "list_sessions",
    "load_session",
    "new_session_path",
    "put_away",
    "put_away_lines",
    "session_directories",
    "sessions_directory",
    "uuid7",
]
