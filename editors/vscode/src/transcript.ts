/** A session as a document that grows while it is talked, what the model sees of it, and single entries. */

import { Range, window, workspace, type Disposable, type Uri } from 'vscode';

import type { Register } from './commands';
import type { Documents } from './documents';
import { t } from './l10n';
import { tokens } from './meter';
import { kindName } from './nodeTexts';
import { COMMANDS, NOTIFICATIONS, textField, type Entry, type Push, type TreeNode } from './protocol';
import { titleOf, type Session } from './sessionModel';
import { EntryLog, entryMarkdown, fence, LiveAnswer, messageMarkdown, plainText } from './transcriptText';
import type { Workbench } from './workbench';

const PAGE = 500;
/** Sections a transcript shows at most; the export has all of them. */
const MOST_SECTIONS = 1_000;
const SETTLE_MS = 100;

interface Following {
  readonly session: string;
  readonly log: EntryLog;
  readonly live: LiveAnswer;
  /** The output of the tool that runs, and the document that shows all of it. */
  tool: string;
  uri: Uri | undefined;
  timer: NodeJS.Timeout | undefined;
  reading: Promise<void> | undefined;
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
      this.#entryDocument(query.get('session') ?? '', query.get('entry') ?? ''),
    );
    this.#disposables = [
      workbench.server.onPush(({ method, params }) => this.#take(method, params)),
      workbench.server.onDidChangeHealth(() => {
        for (const followed of this.#followed.values()) followed.log.clear();
      }),
      workspace.onDidChangeTextDocument(({ document }) => keepEndInView(document.uri)),
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

  /** Show the transcript of the session that is meant. */
  async show(options: { beside?: boolean; keepFocus?: boolean } = {}): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) {
      await this.#workbench.ask(COMMANDS.sessionState, {}); // says that there is none
      return;
    }
    const followed = this.#following(session.id);
    const title = `${titleOf(session.state)} – ${t('transcript')}`;
    followed.uri ??= this.#documents.address('transcript', title, { session: session.id });
    const editor = await this.#documents.show(followed.uri, { ...options, preview: false });
    const end = editor.document.lineAt(editor.document.lineCount - 1).range.end;
    editor.revealRange(new Range(end, end));
  }

  /** Show what the model gets to see. */
  async showContext(): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) {
      await this.#workbench.ask(COMMANDS.sessionState, {});
      return;
    }
    const title = `${titleOf(session.state)} – ${t('what the model sees')}`;
    const uri = this.#documents.address('context', title, { session: session.id });
    const editor = await this.#documents.show(uri);
    this.#documents.refresh(editor.document.uri);
  }

  /** Show one entry whole. */
  async showEntry(session: string, node: TreeNode): Promise<void> {
    const title = `${kindName(node)} ${node.id}`;
    await this.#documents.show(this.#documents.address('entry', title, { session, entry: node.id }));
  }

  /** The text of one entry, for copying. */
  async entryText(session: string, node: TreeNode): Promise<string> {
    const entry = await this.#entry(session, node.id);
    if (entry?.message) return plainText(entry.message);
    return entry?.summary ?? node.text;
  }

  async #entryDocument(session: string, id: string): Promise<string> {
    const entry = await this.#entry(session, id);
    return entry === undefined
      ? t('There is no entry {0} in this session.', id)
      : `${entryMarkdown(entry, true)}\n`;
  }

  /** One entry with its whole body. The server tells entries only in file order, so the one before is needed. */
  async #entry(session: string, id: string): Promise<Entry | undefined> {
    const { log } = this.#following(session);
    if (!log.has(id)) await this.#read(session);
    const since = log.before(id);
    const page = await this.#workbench.ask(
      COMMANDS.getEntries,
      since === null ? { limit: 1 } : { since, limit: 1 },
      { session },
    );
    return page.entries.find((entry) => entry.id === id);
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
    const parts = [`# ${titleOf(session.state)}`, session.state.cwd];
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
    const size = known === undefined ? '' : ` · ${t('{0} tokens', tokens(known))}`;
    const head = `# ${t('What the model sees')}\n\n${titleOf(session.state)}${size}`;
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

/** A reader who was at the end of a transcript stays there. */
function keepEndInView(uri: Uri): void {
  for (const editor of window.visibleTextEditors) {
    const { document } = editor;
    if (document.uri.toString() !== uri.toString() || !uri.path.startsWith('/transcript/')) continue;
    const last = editor.visibleRanges.at(-1)?.end.line ?? 0;
    const end = document.lineAt(document.lineCount - 1).range.end;
    if (end.line - last < 60 && editor.selection.isEmpty) editor.revealRange(new Range(end, end));
  }
}
