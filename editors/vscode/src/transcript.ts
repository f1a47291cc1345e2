/** A session as a document that grows while it is talked, what the model sees of it, and single entries. */

import {
  Range,
  window,
  workspace,
  type Disposable,
  type TextDocumentContentChangeEvent,
  type Uri,
} from 'vscode';

import type { Register } from './commands';
import type { Documents } from './documents';
import { t } from './l10n';
import { tokens } from './meter';
import { kindName } from './nodeTexts';
import { COMMANDS, NOTIFICATIONS, textField, type Entry, type Push, type TreeNode } from './protocol';
import { titleOf, type Session } from './sessionModel';
import {
  EntryLog,
  entryMarkdown,
  fence,
  LiveAnswer,
  messageMarkdown,
  plainText,
  wasAtEnd,
} from './transcriptText';
import { SCHEME, type Workbench } from './workbench';

const PAGE = 500;
/** Sections a transcript shows at most; the export has all of them. */
const MOST_SECTIONS = 1_000;
/** How far after its parent an entry is looked for before all are read. */
const NEAR = 20;
const SETTLE_MS = 100;
/** An editor that opens does not know at once which lines it shows. */
const OPENING_MS = 1_500;

interface Following {
  readonly session: string;
  readonly log: EntryLog;
  readonly live: LiveAnswer;
  /** The output of the tool that runs, and the document that shows all of it. */
  tool: string;
  uri: Uri | undefined;
  timer: NodeJS.Timeout | undefined;
  reading: Promise<void> | undefined;
  /** When it was shown at its end, in milliseconds. */
  shownAt: number;
}

export class Transcripts implements Disposable {
  readonly #workbench: Workbench;
  readonly #documents: Documents;
  readonly #followed = new Map<string, Following>();
  readonly #disposables: Disposable[];

  constructor(workbench: Workbench, documents: Documents) {
    this.#workbench = workbench;
    this.#documents = documents;
    documents.provide('transcript', (query) => this.#transcript(query.get('session') ?? ''));
    documents.provide('context', (query) => this.#context(query.get('session') ?? ''));
    documents.provide('entry', (query) =>
      this.#entryDocument(query.get('session') ?? '', query.get('entry') ?? '', query.get('parent')),
    );
    this.#disposables = [
      workbench.server.onPush(({ method, params }) => this.#take(method, params)),
      workbench.server.onDidChangeHealth(() => {
        for (const followed of this.#followed.values()) this.#startOver(followed);
      }),
      workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        if (contentChanges.length > 0) this.#keepEndInView(document.uri, contentChanges);
      }),
      workspace.onDidCloseTextDocument(({ uri }) => {
        for (const followed of this.#followed.values()) {
          if (followed.uri?.toString() === uri.toString()) followed.uri = undefined;
        }
      }),
    ];
  }

  register(register: Register): void {
    register('piLs.showTranscript', () => this.show());
    register('piLs.showContext', () => this.showContext());
  }

  /** Show the transcript of a session, by default of the one that is meant. */
  async show(options: { beside?: boolean; keepFocus?: boolean } = {}, id?: string): Promise<void> {
    const session = id === undefined ? this.#workbench.session : this.#workbench.model.get(id);
    if (session === undefined) {
      await this.#workbench.ask(COMMANDS.sessionState, {}); // says that there is none
      return;
    }
    const followed = this.#following(session.id);
    const title = `${titleOf(session)} – ${t('transcript')}`;
    followed.uri ??= this.#documents.address('transcript', title, { session: session.id });
    const editor = await this.#documents.show(followed.uri, { ...options, preview: false });
    followed.shownAt = Date.now();
    const end = editor.document.lineAt(editor.document.lineCount - 1).range.end;
    editor.revealRange(new Range(end, end));
  }

  /** Whether somebody has that session's transcript before their eyes. */
  isVisible(session: string): boolean {
    const uri = this.#followed.get(session)?.uri?.toString();
    return window.visibleTextEditors.some(({ document }) => document.uri.toString() === uri);
  }

  /** Show what the model gets to see. */
  async showContext(): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) {
      await this.#workbench.ask(COMMANDS.sessionState, {});
      return;
    }
    const title = `${titleOf(session)} – ${t('what the model sees')}`;
    const uri = this.#documents.address('context', title, { session: session.id });
    const editor = await this.#documents.show(uri);
    this.#documents.refresh(editor.document.uri);
  }

  /** Show one entry whole. */
  async showEntry(session: string, { id, parentId, ...kind }: TreeNode): Promise<void> {
    const query = { session, entry: id, ...(parentId === null ? {} : { parent: parentId }) };
    await this.#documents.show(this.#documents.address('entry', `${kindName(kind)} ${id}`, query));
  }

  /** The text of one entry, for copying. */
  async entryText(session: string, node: TreeNode): Promise<string> {
    const entry = await this.#entry(session, node.id, node.parentId);
    if (entry?.message) return plainText(entry.message);
    return entry?.summary ?? node.text;
  }

  async #entryDocument(session: string, id: string, parent: string | null): Promise<string> {
    const entry = await this.#entry(session, id, parent);
    return entry === undefined
      ? t('There is no entry {0} in this session.', id)
      : `${entryMarkdown(entry, true)}\n`;
  }

  /**
   * One entry with its whole body. The server tells entries only in file order, so the one before is needed.
   * Mostly that is its parent, or near it: not every click on an entry may read a session of any length.
   */
  async #entry(session: string, id: string, parent: string | null): Promise<Entry | undefined> {
    const { log } = this.#following(session);
    if (!log.has(id)) {
      const near = await this.#entriesAfter(session, parent, NEAR);
      const found = near.find((entry) => entry.id === id);
      if (found !== undefined) return found;
      await this.#read(session);
    }
    return (await this.#entriesAfter(session, log.before(id), 1)).find((entry) => entry.id === id);
  }

  async #entriesAfter(session: string, since: string | null, limit: number): Promise<Entry[]> {
    const place = since === null ? {} : { since };
    return (await this.#workbench.ask(COMMANDS.getEntries, { ...place, limit }, { session })).entries;
  }

  #following(session: string): Following {
    const known = this.#followed.get(session);
    if (known !== undefined) return known;
    const fresh: Following = {
      session,
      log: new EntryLog(),
      live: new LiveAnswer(),
      tool: '',
      uri: undefined,
      timer: undefined,
      reading: undefined,
      shownAt: 0,
    };
    this.#followed.set(session, fresh);
    return fresh;
  }

  /** Read what the log does not have yet; asked for while it reads, it is the same reading. */
  async #read(session: string): Promise<void> {
    const followed = this.#following(session);
    followed.reading ??= this.#readAll(followed).finally(() => (followed.reading = undefined));
    await followed.reading;
  }

  async #readAll({ session, log }: Following): Promise<void> {
    for (;;) {
      const since = log.last;
      const page = await this.#workbench.ask(
        COMMANDS.getEntries,
        since === null ? { limit: PAGE } : { since, limit: PAGE },
        { session },
      );
      log.add(page.entries);
      if (!page.hasMore || page.entries.length === 0) return;
    }
  }

  async #transcript(id: string): Promise<string> {
    const session = this.#workbench.model.get(id);
    if (session === undefined) return t('This session is not open any more.');
    const followed = this.#following(id);
    await this.#read(id);
    const { sections, left } = followed.log.path(session.state.leafId, MOST_SECTIONS);
    const parts = [`# ${titleOf(session)}`, session.state.cwd];
    if (left > 0)
      parts.push(`*${t('{0} earlier sections are not shown; export the session to read them.', left)}*`);
    parts.push(...sections, followed.live.text, followed.tool);
    return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
  }

  async #context(id: string): Promise<string> {
    const session: Session | undefined = this.#workbench.model.get(id);
    if (session === undefined) return t('This session is not open any more.');
    const sections: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#workbench.ask(COMMANDS.getMessages, cursor === undefined ? {} : { cursor }, {
        session: id,
      });
      sections.push(...page.messages.map((message) => messageMarkdown(message)));
      cursor = page.hasMore ? page.cursor : undefined;
    } while (cursor !== undefined && sections.length < MOST_SECTIONS);
    const known = session.usage.tokens ?? session.usage.estimatedTokens;
    if (cursor !== undefined)
      sections.push(`*${t('The later messages are not shown; export the session to read them.')}*`);
    const size = known === undefined ? '' : ` · ${t('{0} tokens', tokens(known))}`;
    const head = `# ${t('What the model sees')}\n\n${titleOf(session)}${size}`;
    return `${[head, ...sections].join('\n\n')}\n`;
  }

  // --- growing

  #take(method: string, params: Push): void {
    const followed = params.sessionId === undefined ? undefined : this.#followed.get(params.sessionId);
    if (followed === undefined) return;
    switch (method) {
      case NOTIFICATIONS.messageUpdate:
        followed.live.take(params['assistantMessageEvent'] as Parameters<LiveAnswer['take']>[0]);
        break;
      case NOTIFICATIONS.toolExecutionUpdate:
        followed.tool = toolText(params);
        break;
      case NOTIFICATIONS.sessionOpened:
        this.#startOver(followed);
        break;
      case NOTIFICATIONS.messageEnd:
      case NOTIFICATIONS.agentSettled:
        followed.live.clear();
        followed.tool = '';
        break;
      case NOTIFICATIONS.sessionReloaded:
        followed.log.clear();
        break;
      case NOTIFICATIONS.toolExecutionEnd:
        followed.tool = '';
        break;
      case NOTIFICATIONS.entryAppended:
      case NOTIFICATIONS.sessionTree:
      case NOTIFICATIONS.sessionInfoChanged:
        break;
      default:
        return;
    }
    this.#settle(followed);
  }

  /** What was being written is written no more, and what was read may be another file's. */
  #startOver(followed: Following): void {
    followed.log.clear();
    followed.live.clear();
    followed.tool = '';
    if (this.#workbench.model.get(followed.session) !== undefined) this.#settle(followed);
  }

  /** A reader who was at the end of a transcript stays there; one who has scrolled away is left alone. */
  #keepEndInView(uri: Uri, changes: readonly TextDocumentContentChangeEvent[]): void {
    if (uri.scheme !== SCHEME || !uri.path.startsWith('/transcript/')) return;
    const followed = this.#followed.get(new URLSearchParams(uri.query).get('session') ?? '');
    const isNew = Date.now() - (followed?.shownAt ?? 0) < OPENING_MS;
    for (const editor of window.visibleTextEditors) {
      const { document } = editor;
      if (document.uri.toString() !== uri.toString() || !editor.selection.isEmpty) continue;
      const seen = editor.visibleRanges.at(-1)?.end.line ?? 0;
      const end = document.lineAt(document.lineCount - 1).range.end;
      const isAtEnd = isNew || wasAtEnd(seen, end.line - linesAdded(changes));
      if (isAtEnd) editor.revealRange(new Range(end, end));
    }
  }

  #settle(followed: Following): void {
    if (followed.uri === undefined || followed.timer !== undefined) return;
    followed.timer = setTimeout(() => {
      followed.timer = undefined;
      if (followed.uri !== undefined) this.#documents.refresh(followed.uri);
    }, SETTLE_MS);
  }

  dispose(): void {
    for (const followed of this.#followed.values()) clearTimeout(followed.timer);
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

function toolText(params: Push): string {
  const { content } = (params['partialResult'] ?? {}) as { content?: { text?: string }[] };
  const text = (content ?? []).map((block) => block.text ?? '').join('\n');
  return `## ${t('{0} is running', textField(params, 'toolName') || t('tool'))}\n\n${text === '' ? '' : fence(text)}`;
}

/** By how many lines a document has become longer. */
const linesAdded = (changes: readonly TextDocumentContentChangeEvent[]): number =>
  changes.reduce(
    (sum, { text, range }) => sum + (text.split('\n').length - 1) - (range.end.line - range.start.line),
    0,
  );
