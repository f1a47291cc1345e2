/**
 * What the extension knows of the server's sessions, kept up to date by notifications. No editor in here.
 *
 * A folder has at most one current session; every other open session goes on being followed, because it may
 * be running and become current again.
 */

import { t } from './l10n';
import {
  NOTIFICATIONS,
  textField,
  type CompactionReason,
  type ContextUsage,
  type Push,
  type SessionState,
} from './protocol';

export interface Session {
  readonly id: string;
  readonly workspace: string;
  state: SessionState;
  usage: ContextUsage;
  /** Why a compaction runs at the moment; absent: none does. */
  compacting?: CompactionReason;
  running: boolean;
  /** Attempt and limit of the request that is waiting to be sent again. */
  retry?: { attempt: number; maxAttempts: number };
  /** Why automatic compaction pauses, in a sentence. */
  paused?: string;
  queued: number;
  /** The questions of the agent that wait for an answer, by their ids. */
  asking: Set<string>;
  /** What a person may want to know about its file and its settings, in sentences. */
  problems: string[];
  /** How it begins, where that was learned: what a session without a name is called. */
  beginning?: string;
}

/** Events that may come before that of the opened session. */
const EARLY = new Set<string>([
  NOTIFICATIONS.sessionProblem,
  NOTIFICATIONS.settingsProblem,
  NOTIFICATIONS.autoCompactionPaused,
]);

type Listener = (session: Session | undefined) => void;

export class SessionModel {
  readonly #sessions = new Map<string, Session>();
  readonly #current = new Map<string, string>();
  /** What was told of sessions before they were: a session's settings are read before it is opened. */
  readonly #early = new Map<string, { method: string; params: Push }[]>();
  readonly #listeners = new Set<Listener>();

  /** Call `listener` after every change, with the session that changed where it was one. */
  onDidChange(listener: Listener): { dispose(): void } {
    this.#listeners.add(listener);
    return { dispose: () => this.#listeners.delete(listener) };
  }

  /** The session a folder works with. */
  current(workspace: string): Session | undefined {
    const id = this.#current.get(workspace);
    return id === undefined ? undefined : this.#sessions.get(id);
  }

  /** An open session by its id. */
  get(id: string): Session | undefined {
    return this.#sessions.get(id);
  }

  /** Every open session. */
  all(): Session[] {
    return [...this.#sessions.values()];
  }

  /** The server is gone, and its sessions with it. */
  clear(): void {
    this.#sessions.clear();
    this.#current.clear();
    this.#early.clear();
    this.#changed(undefined);
  }

  /** Take in the answer of a command that tells a session's state; `current`: its folder works with it now. */
  told(workspace: string, state: SessionState, current = false): Session {
    const known = this.#sessions.get(state.sessionId);
    const session: Session = known ?? {
      id: state.sessionId,
      workspace,
      state,
      usage: {},
      running: state.isStreaming,
      queued: state.pendingMessageCount,
      asking: new Set(),
      problems: [],
    };
    session.state = state;
    session.running = state.isStreaming;
    for (const { message } of state.problems) addOnce(session.problems, message);
    if (!state.isCompacting) delete session.compacting;
    else session.compacting ??= 'manual';
    this.#sessions.set(session.id, session);
    for (const { method, params } of this.#early.get(session.id) ?? []) this.#note(session, method, params);
    this.#early.delete(session.id);
    if (current || !this.#current.has(workspace)) this.#current.set(workspace, session.id);
    this.#changed(session);
    return session;
  }

  /** Take in the answer of `pi.contextUsage`. */
  toldUsage(sessionId: string, usage: ContextUsage): void {
    const session = this.#sessions.get(sessionId);
    if (session === undefined) return;
    session.usage = usage;
    this.#changed(session);
  }

  /** Take in how a session begins. */
  toldBeginning(sessionId: string, beginning: string): void {
    const session = this.#sessions.get(sessionId);
    if (session === undefined) return;
    session.beginning = beginning;
    this.#changed(session);
  }

  /** Take in one notification of the server. */
  apply(method: string, params: Push): void {
    const { workspace = '', sessionId } = params;
    if (method === NOTIFICATIONS.sessionOpened) {
      this.told(workspace, params as unknown as SessionState & Push, true);
      return;
    }
    const session = sessionId === undefined ? undefined : this.#sessions.get(sessionId);
    if (session === undefined) {
      if (sessionId !== undefined && EARLY.has(method)) this.#keep(sessionId, { method, params });
      return;
    }
    if (method === NOTIFICATIONS.sessionClosed) {
      this.#sessions.delete(session.id);
      if (this.#current.get(session.workspace) === session.id) this.#current.delete(session.workspace);
    } else if (!this.#note(session, method, params)) {
      return;
    }
    this.#changed(session);
  }

  #keep(id: string, push: { method: string; params: Push }): void {
    const kept = this.#early.get(id) ?? [];
    kept.push(push);
    this.#early.set(id, kept);
  }

  #note(session: Session, method: string, params: Push): boolean {
    switch (method) {
      case NOTIFICATIONS.contextUsage:
        session.usage = params as ContextUsage;
        session.state.autoCompactionEnabled =
          session.usage.autoCompactionEnabled ?? session.state.autoCompactionEnabled;
        return true;
      case NOTIFICATIONS.compactionStart:
        session.compacting = params['reason'] as CompactionReason;
        return true;
      case NOTIFICATIONS.compactionEnd:
        delete session.compacting;
        delete session.retry;
        return true;
      case NOTIFICATIONS.autoCompactionPaused:
        session.paused = textField(params, 'message');
        return true;
      case NOTIFICATIONS.autoCompactionResumed:
        delete session.paused;
        return true;
      case NOTIFICATIONS.agentStart:
        session.running = true;
        return true;
      case NOTIFICATIONS.agentSettled:
        session.running = false;
        session.asking.clear();
        delete session.retry;
        return true;
      case NOTIFICATIONS.approvalRequest:
        session.asking.add(textField(params, 'approvalId'));
        return true;
      case NOTIFICATIONS.approvalResolved:
        session.asking.delete(textField(params, 'approvalId'));
        return true;
      case NOTIFICATIONS.sessionProblem:
      case NOTIFICATIONS.settingsProblem:
        addOnce(session.problems, textField(params, 'message'));
        return true;
      case NOTIFICATIONS.autoRetryStart:
      case NOTIFICATIONS.summarizationRetryScheduled:
        session.retry = { attempt: Number(params['attempt']), maxAttempts: Number(params['maxAttempts']) };
        return true;
      case NOTIFICATIONS.autoRetryEnd:
        delete session.retry;
        return true;
      case NOTIFICATIONS.queueUpdate:
        session.queued = length(params['steering']) + length(params['followUp']);
        return true;
      case NOTIFICATIONS.sessionInfoChanged:
        session.state.name = (params['name'] as string | null | undefined) ?? null;
        return true;
      case NOTIFICATIONS.sessionTree:
        session.state.leafId = params['newLeafId'] as string | null;
        return true;
      case NOTIFICATIONS.entryAppended:
        session.state.leafId = params['leafId'] as string | null;
        return true;
      case NOTIFICATIONS.modelChanged: {
        const { provider, modelId } = params as { provider?: string | null; modelId?: string | null };
        if (provider && modelId) session.state.model = { provider, id: modelId };
        else delete session.state.model;
        return true;
      }
      case NOTIFICATIONS.thinkingLevelChanged:
        session.state.thinkingLevel = String(params['level']);
        return true;
      default:
        return false;
    }
  }

  #changed(session: Session | undefined): void {
    for (const listener of this.#listeners) listener(session);
  }
}

const length = (list: unknown): number => (Array.isArray(list) ? list.length : 0);

function addOnce(list: string[], text: string): void {
  if (text !== '' && !list.includes(text)) list.push(text);
}

const BEGINNING = 50;

/** What a person calls a session: its name, else how it begins, else the beginning of its id. */
export function titleOf({ state, beginning }: Pick<Session, 'state' | 'beginning'>): string {
  const name = state.name?.trim();
  if (name) return name;
  const begins = (beginning ?? '').replace(/\s+/g, ' ').trim();
  if (begins === '') return state.messageCount === 0 ? t('New session') : state.sessionId.slice(0, 13);
  return begins.length > BEGINNING
    ? `${begins
        .slice(0, BEGINNING)
        .replace(/[\ud800-\udbff]$/, '')
        .trimEnd()}…`
    : begins;
}
