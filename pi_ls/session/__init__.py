"""One session and what it can do; the surroundings it does it in.

`agent_session.py` owns the file, the tree and the one operation that may run; `compacting.py`,
`navigating.py`, `pruning.py` and `prompting.py` tell what an operation does, step by step; `reading.py` what
can be looked at. `agent.py` is the agent of a session with its queue, `approvals.py` what it may do.
"""

from pi_ls.session.agent_session import AgentSession, Emit, Progress
from pi_ls.session.environment import Answer, Decision, Environment, default_agent_dir

__all__ = ["AgentSession", "Answer", "Decision", "Emit", "Environment", "Progress", "default_agent_dir"]
