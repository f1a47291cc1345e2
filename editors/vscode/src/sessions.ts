/** Sessions: the view that lists them, opening, beginning, naming, copying and exporting them. */

import {
  env,
  EventEmitter,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  Uri,
  window,
  workspace,
  type Disposable,
  type QuickPickItem,
  type TreeDataProvider,
} from 'vscode';

import { millis } from './arrangement';
import type { Register } from './commands';
import { t } from './l10n';
import { ago } from './nodeTexts';
import { COMMANDS, NOTIFICATIONS, type SessionRow } from './protocol';
import { titleOf, type Session } from './sessionModel';
import type { Workbench } from './workbench';

export const SESSIONS_VIEW = 'piLs.sessions';

const SETTLE_MS = 300;
const MOST = 200;

const LISTED = new Set<string>([
  NOTIFICATIONS.sessionOpened,
  NOTIFICATIONS.sessionClosed,
  NOTIFICATIONS.sessionInfoChanged,
]);

export class Sessions implements TreeDataProvider<SessionRow>, Disposable {
  readonly #workbench: Workbench;
  readonly #changed = new EventEmitter<undefined>();
  readonly #disposables: Disposable[];
  #timer: NodeJS.Timeout | undefined;
  #folder: string | undefined;

  readonly onDidChangeTreeData = this.#changed.event;

  constructor(workbench: Workbench) {
    this.#workbench = workbench;
    this.#disposables = [
      this.#changed,
      window.createTreeView(SESSIONS_VIEW, { treeDataProvider: this }),
      workbench.server.onDidChangeHealth(() => this.#settle()),
      workbench.server.onPush(({ method }) => {
        if (LISTED.has(method)) this.#settle();
      }),
      workbench.onDidChangeFocus(() => {
        if (workbench.folder?.workspace !== this.#folder) this.#settle();
      }),
    ];
  }

  register(register: Register): void {
    register('piLs.sessions.refresh', () => this.#changed.fire(undefined));
    register('piLs.newSession', () => this.#workbench.open(this.#workbench.ask(COMMANDS.newSession, {})));
    register('piLs.openSession', (row?: SessionRow) => (row?.path ? this.open(row) : this.pick(false)));
    register('piLs.openSessionOfAnyFolder', () => this.pick(true));
    register('piLs.renameSession', (row?: SessionRow) => this.rename(row));
    register('piLs.cloneSession', (row?: SessionRow) => this.clone(row));
    register('piLs.exportSession', (row?: SessionRow) => this.export(row));
    register('piLs.closeSession', () => this.#workbench.ask(COMMANDS.closeSession, {}));
    register('piLs.copySessionPath', (row?: SessionRow) => {
      const path = row?.path ?? this.#workbench.session?.state.sessionFile;
      return path === undefined ? undefined : env.clipboard.writeText(path);
    });
  }

  #settle(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#changed.fire(undefined), SETTLE_MS);
  }

  // --- the view

  async getChildren(row?: SessionRow): Promise<SessionRow[]> {
    if (row !== undefined || this.#workbench.server.health !== 'running') return [];
    this.#folder = this.#workbench.folder?.workspace;
    try {
      return withCurrent(await this.#list(false), this.#workbench.session);
    } catch (error) {
      this.#workbench.log.warn(`sessions cannot be listed: ${String(error)}`);
      return [];
    }
  }

  getTreeItem(row: SessionRow): TreeItem {
    const current = this.#workbench.session?.id === row.id;
    const item = new TreeItem(nameOf(row));
    item.id = row.path;
    item.iconPath = current
      ? new ThemeIcon('comment-discussion', new ThemeColor('charts.blue'))
      : new ThemeIcon('comment');
    const facts = t('{0} · {1} messages', ago(millis(row.modified), Date.now()), row.messageCount);
    item.description = current ? `${facts} · ${t('open')}` : facts;
    item.tooltip = `${nameOf(row)}\n\n${row.firstMessage}\n\n${row.path}`;
    item.contextValue = current ? 'session current' : 'session';
    item.command = { title: t('Open'), command: 'piLs.openSession', arguments: [row] };
    return item;
  }

  async #list(all: boolean): Promise<SessionRow[]> {
    const { sessions } = await this.#workbench.ask(COMMANDS.listSessions, {
      limit: MOST,
      ...(all ? { all } : {}),
    });
    return sessions;
  }

  // --- actions

  async open(row: Pick<SessionRow, 'path'>): Promise<void> {
    await this.#workbench.open(this.#workbench.ask(COMMANDS.openSession, { path: row.path }));
  }

  /** Choose a session of this folder, or of every folder. */
  async pick(all: boolean): Promise<void> {
    const rows = await this.#list(all);
    if (rows.length === 0) {
      const begin = t('New Session');
      const chosen = await window.showInformationMessage(t('pi: there are no sessions here yet.'), begin);
      if (chosen === begin) await this.#workbench.open(this.#workbench.ask(COMMANDS.newSession, {}));
      return;
    }
    const items = rows.map((row): QuickPickItem & { row: SessionRow } => ({
      label: nameOf(row).replace(/\$\(/g, '$ ('),
      description: t('{0} · {1} messages', ago(millis(row.modified), Date.now()), row.messageCount),
      ...(all ? { detail: row.cwd } : {}),
      row,
    }));
    const chosen = await window.showQuickPick(items, {
      placeHolder: t('Which session?'),
      matchOnDescription: true,
      matchOnDetail: true,
    });
    if (chosen !== undefined) await this.open(chosen.row);
  }

  async rename(row?: SessionRow): Promise<void> {
    const value = row === undefined ? (this.#workbench.session?.state.name ?? '') : (row.name ?? '');
    const name = await window.showInputBox({ placeHolder: t('The name of the session'), value });
    if (name === undefined) return;
    await this.#with(row, async (session) => {
      const state = await this.#workbench.ask(COMMANDS.setSessionName, { name }, { session: session.id });
      this.#workbench.model.told(session.workspace, state);
    });
  }

  /** A new session that holds the current path of that one. */
  async clone(row?: SessionRow): Promise<void> {
    const session = await this.#target(row);
    const { session: state } = await this.#workbench.ask(COMMANDS.cloneSession, {}, { session: session.id });
    this.#workbench.model.told(session.workspace, state, true);
  }

  async export(row?: SessionRow): Promise<void> {
    const formats = [
      { label: t('Markdown'), description: t('the current path, to be read'), format: 'markdown' as const },
      { label: t('JSON lines'), description: t('the whole session, for programs'), format: 'jsonl' as const },
    ];
    const chosen = await window.showQuickPick(formats, { placeHolder: t('Export as what?') });
    if (chosen === undefined) return;
    await this.#with(row, async (session) => {
      const suffix = chosen.format === 'markdown' ? 'md' : 'jsonl';
      const folder = this.#workbench.folder?.uri ?? Uri.file(session.state.cwd);
      const name = titleOf(session).replace(/[^\p{L}\p{N}._-]+/gu, '-');
      const target = await window.showSaveDialog({ defaultUri: Uri.joinPath(folder, `${name}.${suffix}`) });
      if (target === undefined) return;
      const { path } = await this.#workbench.ask(
        COMMANDS.exportSession,
        { format: chosen.format, path: target.fsPath },
        { session: session.id },
      );
      // Not waited for: the session that was current before is to be so again.
      void this.#workbench.attempt(() => offerToOpen(path));
    });
  }

  /** Do something with a session of the list; the one that was current before is current again afterwards. */
  async #with(row: SessionRow | undefined, act: (session: Session) => Promise<void>): Promise<void> {
    const before = this.#workbench.session;
    const session = await this.#target(row);
    try {
      await act(session);
    } finally {
      if (before !== undefined && before.id !== session.id)
        await this.open({ path: before.state.sessionFile });
      this.#settle();
    }
  }

  async #target(row: SessionRow | undefined): Promise<Session> {
    const { session, model } = this.#workbench;
    if (row?.path !== undefined) {
      return (
        model.get(row.id) ??
        (await this.#workbench.open(this.#workbench.ask(COMMANDS.openSession, { path: row.path })))
      );
    }
    return session ?? (await this.#workbench.open(this.#workbench.ask(COMMANDS.sessionState, {})));
  }

  dispose(): void {
    clearTimeout(this.#timer);
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

/** A session is written with its first answer; until then no list has it, but it is there to be named. */
function withCurrent(rows: SessionRow[], session: Session | undefined): SessionRow[] {
  if (session === undefined || rows.some(({ path }) => path === session.state.sessionFile)) return rows;
  const { sessionId: id, sessionFile: path, name, cwd, messageCount } = session.state;
  const now = new Date().toISOString();
  const firstMessage = titleOf(session);
  return [{ id, path, name, cwd, messageCount, firstMessage, created: now, modified: now }, ...rows];
}

const nameOf = (row: SessionRow): string =>
  row.name?.trim() || row.firstMessage.replace(/\s+/g, ' ').trim().slice(0, 80) || row.id;

async function offerToOpen(path: string): Promise<void> {
  const show = t('Open');
  const answer = await window.showInformationMessage(t('pi: exported to {0}', path), show);
  if (answer === show) await window.showTextDocument(await workspace.openTextDocument(Uri.file(path)));
}
