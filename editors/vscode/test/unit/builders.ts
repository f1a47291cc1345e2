/** Small builders of what the server tells. */

import type { ContextUsage, SessionState, TreeNode } from '../../src/protocol';
import { SessionModel, type Session } from '../../src/sessionModel';

export const state = (changes: Partial<SessionState> = {}): SessionState => ({
  sessionId: 's1',
  sessionFile: '/sessions/s1.jsonl',
  name: 'Short day',
  cwd: '/home/mira/meterlog',
  leafId: 'a',
  thinkingLevel: 'off',
  isStreaming: false,
  isCompacting: false,
  autoCompactionEnabled: true,
  steeringMode: 'one-at-a-time',
  followUpMode: 'one-at-a-time',
  messageCount: 3,
  pendingMessageCount: 0,
  unsaved: 0,
  trusted: true,
  readOnly: false,
  problems: [],
  ...changes,
});

export const usage = (changes: Partial<ContextUsage> = {}): ContextUsage => ({
  tokens: 24_600,
  contextWindow: 200_000,
  percent: 12.3,
  estimatedTokens: 24_600,
  source: 'measured',
  thresholdTokens: 183_616,
  autoCompactionEnabled: true,
  autoCompactionPaused: false,
  cost: 0,
  ...changes,
});

/** A session as the model holds it, with that usage. */
export function session(of: ContextUsage = usage(), changes: Partial<SessionState> = {}): Session {
  const model = new SessionModel();
  const told = model.told('file:///w', state(changes), true);
  told.usage = of;
  return told;
}

export const node = (id: string, parentId: string | null, changes: Partial<TreeNode> = {}): TreeNode => ({
  id,
  parentId,
  type: 'message',
  role: 'user',
  text: `text of ${id}`,
  timestamp: '2025-10-28T19:04:08.212Z',
  tokens: 10,
  childCount: 0,
  onPath: false,
  isLeaf: false,
  ...changes,
});

/** Nodes from lines such as "a b* c": a chain under `parent`; `*` is on the path, `!` is the leaf. */
export function chain(line: string, parent: string | null = null): TreeNode[] {
  let at = parent;
  return line.split(' ').map((word) => {
    const id = word.replace(/[*!]/g, '');
    const made = node(id, at, { onPath: /[*!]/.test(word), isLeaf: word.includes('!') });
    at = id;
    return made;
  });
}
