/**
 * What goes over the wire besides plain LSP: the server's names, and the shapes of what it is asked and answers.
 *
 * The tables hold plain strings, one a line, so that the server's tests can compare them with its own.
 */

/** Every command of `workspace/executeCommand`. None of them is ever a VS Code command. */
export const COMMANDS = {
  listSessions: 'pi.listSessions',
  openSession: 'pi.openSession',
  newSession: 'pi.newSession',
  closeSession: 'pi.closeSession',
  sessionState: 'pi.sessionState',
  setSessionName: 'pi.setSessionName',
  forkSession: 'pi.forkSession',
  cloneSession: 'pi.cloneSession',
  sessionStats: 'pi.sessionStats',
  exportSession: 'pi.exportSession',
  getEntries: 'pi.getEntries',
  getMessages: 'pi.getMessages',
  contextUsage: 'pi.contextUsage',
  previewCompaction: 'pi.previewCompaction',
  compact: 'pi.compact',
  abortCompaction: 'pi.abortCompaction',
  undoCompaction: 'pi.undoCompaction',
  setAutoCompaction: 'pi.setAutoCompaction',
  pruneToolOutputs: 'pi.pruneToolOutputs',
  restorePruned: 'pi.restorePruned',
  getTree: 'pi.getTree',
  navigateTree: 'pi.navigateTree',
  abortBranchSummary: 'pi.abortBranchSummary',
  setLabel: 'pi.setLabel',
  prompt: 'pi.prompt',
  steer: 'pi.steer',
  followUp: 'pi.followUp',
  clearQueue: 'pi.clearQueue',
  abort: 'pi.abort',
  continue: 'pi.continue',
  bash: 'pi.bash',
  abortBash: 'pi.abortBash',
  answerApproval: 'pi.answerApproval',
  listModels: 'pi.listModels',
  setModel: 'pi.setModel',
  setThinkingLevel: 'pi.setThinkingLevel',
  setTrust: 'pi.setTrust',
  reloadSettings: 'pi.reloadSettings',
} as const;

/** Every notification of the server: `pi/` and the event's name. */
export const NOTIFICATIONS = {
  compactionStart: 'pi/compaction_start',
  compactionEnd: 'pi/compaction_end',
  autoCompactionPaused: 'pi/auto_compaction_paused',
  autoCompactionResumed: 'pi/auto_compaction_resumed',
  contextUsage: 'pi/context_usage',
  sessionOpened: 'pi/session_opened',
  sessionClosed: 'pi/session_closed',
  sessionInfoChanged: 'pi/session_info_changed',
  sessionTree: 'pi/session_tree',
  entryAppended: 'pi/entry_appended',
  sessionReloaded: 'pi/session_reloaded',
  sessionProblem: 'pi/session_problem',
  agentStart: 'pi/agent_start',
  turnStart: 'pi/turn_start',
  messageStart: 'pi/message_start',
  messageUpdate: 'pi/message_update',
  messageEnd: 'pi/message_end',
  toolExecutionStart: 'pi/tool_execution_start',
  toolExecutionUpdate: 'pi/tool_execution_update',
  toolExecutionEnd: 'pi/tool_execution_end',
  turnEnd: 'pi/turn_end',
  agentEnd: 'pi/agent_end',
  agentSettled: 'pi/agent_settled',
  queueUpdate: 'pi/queue_update',
  autoRetryStart: 'pi/auto_retry_start',
  autoRetryEnd: 'pi/auto_retry_end',
  summarizationRetryScheduled: 'pi/summarization_retry_scheduled',
  sessionCompactFailed: 'pi/session_compact_failed',
  modelChanged: 'pi/model_changed',
  thinkingLevelChanged: 'pi/thinking_level_changed',
  trustChanged: 'pi/trust_changed',
  approvalRequest: 'pi/approval_request',
  approvalResolved: 'pi/approval_resolved',
  extensionError: 'pi/extension_error',
  settingsProblem: 'pi/settings_problem',
} as const;

/** The `filter` of `pi.getTree`. */
export const TREE_FILTERS = ['default', 'no-tools', 'user-only', 'labeled-only', 'all'] as const;

/** The `level` of `pi.setThinkingLevel`. */
export const THINKING_LEVELS = ['off', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;

/** The section under which the server looks for the editor's configuration. */
export const CONFIGURATION_SECTION = 'pi';

/** JSON-RPC error codes the extension tells apart. */
export const ERROR_CODES = {
  methodNotFound: -32601,
  requestCancelled: -32800,
  requestFailed: -32803,
} as const;

export type TreeFilter = (typeof TREE_FILTERS)[number];
export type ThinkingLevel = (typeof THINKING_LEVELS)[number];
export type CompactionReason = 'manual' | 'threshold' | 'overflow';
export type Decision = 'once' | 'session' | 'always' | 'no';
export type Disposition = 'started' | 'queued';

export interface Model {
  provider: string;
  id: string;
  name?: string;
  contextWindow?: number;
  maxTokens?: number;
  reasoning?: boolean;
  available?: boolean;
}

export interface SessionProblem {
  kind: string;
  message: string;
  line?: number;
  entryId?: string;
}

export interface SessionState {
  sessionId: string;
  sessionFile: string;
  name: string | null;
  cwd: string;
  leafId: string | null;
  model?: Model;
  thinkingLevel: string;
  operation?: 'run' | 'compaction' | 'navigation';
  isStreaming: boolean;
  isCompacting: boolean;
  autoCompactionEnabled: boolean;
  steeringMode: string;
  followUpMode: string;
  messageCount: number;
  pendingMessageCount: number;
  unsaved: number;
  trusted: boolean;
  readOnly: boolean;
  problems: SessionProblem[];
}

export interface SessionRow {
  id: string;
  path: string;
  name?: string | null;
  cwd: string;
  created: string;
  modified: string;
  messageCount: number;
  firstMessage: string;
  parentSession?: string | null;
}

export const CATEGORIES = [
  'system',
  'tools',
  'summary',
  'user',
  'assistant',
  'thinking',
  'toolResults',
  'bash',
  'custom',
  'images',
  'unattributed',
] as const;
export type Category = (typeof CATEGORIES)[number];

/** Without a model or a usable window all of it is absent; `tokens` and `percent` are null after a compaction. */
export interface ContextUsage {
  tokens?: number | null;
  contextWindow?: number;
  percent?: number | null;
  estimatedTokens?: number;
  source?: 'measured' | 'measured+estimate' | 'estimate';
  thresholdTokens?: number;
  autoCompactionEnabled?: boolean;
  autoCompactionPaused?: boolean;
  cost?: number;
}

export interface ContextDetail extends ContextUsage {
  categories?: Partial<Record<Category, number>>;
  files?: { path: string; tokens: number }[];
}

export interface CompactionPreview {
  possible: boolean;
  reason?: string;
  firstKeptEntryId?: string;
  isSplitTurn?: boolean;
  summarizedEntryIds?: string[];
  turnPrefixEntryIds?: string[];
  keptEntryIds?: string[];
  tokensBefore?: number;
  estimatedTokensAfter?: number;
  previousSummary?: string;
  readFiles?: string[];
  modifiedFiles?: string[];
  settings?: Record<string, unknown>;
  prompts?: { name: string; tokens: number }[];
}

export interface CompactionResult {
  entryId: string;
  summary: string;
  shortSummary?: string;
  firstKeptEntryId: string;
  tokensBefore: number;
  estimatedTokensAfter: number;
  fromExtension: boolean;
}

export interface TreeNode {
  id: string;
  parentId: string | null;
  type: string;
  role?: string;
  text: string;
  label?: string;
  timestamp: string | number;
  tokens: number;
  childCount: number;
  onPath: boolean;
  isLeaf: boolean;
  orphan?: boolean;
}

export interface TreePage {
  nodes: TreeNode[];
  leafId: string | null;
  hasMore: boolean;
  cursor?: string;
}

export interface NavigationResult {
  cancelled: boolean;
  aborted?: boolean;
  editorText?: string;
  summaryEntry?: Entry;
  leafId: string | null;
  oldLeafId: string | null;
}

/** A block of a message's content, as the session file has it. */
export interface Block {
  type: string;
  text?: string;
  thinking?: string;
  id?: string;
  name?: string;
  arguments?: unknown;
  mimeType?: string;
}

/** A message of any role, as the session file has it. */
export interface Message {
  role: string;
  content?: string | Block[] | null;
  entryId?: string;
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  stopReason?: string;
  errorMessage?: string;
  command?: string;
  output?: string;
  exitCode?: number | null;
  cancelled?: boolean;
  summary?: string;
  customType?: string;
}

/** An entry of any type, as the session file has it. */
export interface Entry {
  type: string;
  id: string;
  parentId: string | null;
  timestamp?: string | number;
  message?: Message | null;
  summary?: string;
  tokensBefore?: number;
  content?: string | Block[];
  customType?: string;
  display?: boolean;
}

/** What each command takes and answers. */
export interface CommandTypes {
  'pi.listSessions': [{ query?: string; limit?: number; all?: boolean }, { sessions: SessionRow[] }];
  'pi.openSession': [{ path: string } | { id: string }, SessionState];
  'pi.newSession': [{ parentSession?: string; name?: string }, SessionState];
  'pi.closeSession': [object, { closed: boolean }];
  'pi.sessionState': [object, SessionState];
  'pi.setSessionName': [{ name: string }, SessionState];
  'pi.forkSession': [{ entryId: string }, { session: SessionState; text: string }];
  'pi.cloneSession': [object, { session: SessionState }];
  'pi.sessionStats': [object, Record<string, unknown>];
  'pi.exportSession': [{ format: 'markdown' | 'jsonl'; path?: string }, { path: string }];
  'pi.getEntries': [
    { since?: string; limit?: number },
    { entries: Entry[]; leafId: string | null; hasMore: boolean },
  ];
  'pi.getMessages': [
    { leafId?: string | null; limit?: number; cursor?: string },
    { messages: Message[]; model?: Model; thinkingLevel: string; hasMore: boolean; cursor?: string },
  ];
  'pi.contextUsage': [{ detail?: boolean }, ContextDetail];
  'pi.previewCompaction': [{ customInstructions?: string; keepRecentTokens?: number }, CompactionPreview];
  'pi.compact': [{ customInstructions?: string }, CompactionResult];
  'pi.abortCompaction': [object, { aborted: boolean }];
  'pi.undoCompaction': [object, { leafId: string | null; oldLeafId: string | null; entriesLeft: number }];
  'pi.setAutoCompaction': [{ enabled: boolean }, SessionState & { notSaved?: string }];
  'pi.pruneToolOutputs': [{ dryRun?: boolean }, { prunedCount: number; tokensSaved: number }];
  'pi.restorePruned': [{ entryIds?: string[] }, { restoredCount: number }];
  'pi.getTree': [
    {
      filter?: TreeFilter;
      query?: string;
      rootId?: string;
      depth?: number;
      limit?: number;
      cursor?: string;
    },
    TreePage,
  ];
  'pi.navigateTree': [
    {
      targetId: string | null;
      summarize?: boolean;
      customInstructions?: string;
      replaceInstructions?: boolean;
      label?: string;
    },
    NavigationResult,
  ];
  'pi.abortBranchSummary': [object, { aborted: boolean }];
  'pi.setLabel': [
    { entryId: string; label: string | null },
    { entryId: string; label: string | null; leafId: string | null },
  ];
  'pi.prompt': [{ text: string; streamingBehavior?: 'steer' | 'followUp' }, { disposition: Disposition }];
  'pi.steer': [{ text: string }, { disposition: Disposition }];
  'pi.followUp': [{ text: string }, { disposition: Disposition }];
  'pi.clearQueue': [object, { steering: unknown[]; followUp: unknown[] }];
  'pi.abort': [object, { aborted: boolean }];
  'pi.continue': [object, { disposition: Disposition }];
  'pi.bash': [
    { command: string; excludeFromContext?: boolean },
    { output: string; exitCode: number | null; cancelled: boolean; truncated: boolean },
  ];
  'pi.abortBash': [object, { aborted: boolean }];
  'pi.answerApproval': [{ approvalId: string; decision: Decision }, { answered: boolean }];
  'pi.listModels': [{ query?: string }, { models: Model[]; current?: Model | string }];
  'pi.setModel': [{ provider: string; modelId: string }, SessionState];
  'pi.setThinkingLevel': [{ level: ThinkingLevel }, SessionState];
  'pi.setTrust': [{ trusted: boolean }, SessionState];
  'pi.reloadSettings': [object, { settings: unknown; problems: unknown[] }];
}

export type Command = keyof CommandTypes;
export type Arguments<C extends Command> = CommandTypes[C][0];
export type Result<C extends Command> = CommandTypes[C][1];

/** Which folder, and which session of it, a command or a notification means. */
export interface Address {
  workspace?: string;
  sessionId?: string;
}

/** The params of every notification: the event's own fields and whom it is about. */
export interface Push extends Address {
  seq?: number;
  [field: string]: unknown;
}

/** A field that holds text, empty where it does not. */
export function textField(fields: object, name: string): string {
  const value: unknown = (fields as Record<string, unknown>)[name];
  return typeof value === 'string' ? value : '';
}
