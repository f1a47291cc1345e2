/** What every part of the extension works with: the server, what is known of its sessions, and who is meant. */

import {
  commands,
  EventEmitter,
  window,
  workspace,
  type Disposable,
  type LogOutputChannel,
  type Uri,
} from 'vscode';

import { reportError } from './failures';
import { t } from './l10n';
import {
  COMMANDS,
  NOTIFICATIONS,
  type Address,
  type Arguments,
  type Command,
  type Push,
  type Result,
  type SessionState,
} from './protocol';
import { uriOf } from './server/client';
import { ServerNotRunning, type Asking, type Server } from './server/server';
import { SessionModel, titleOf, type Session } from './sessionModel';

/** The scheme of the documents this extension makes; their query names the session. */
export const SCHEME = 'pi-ls';

/** Events after which a session may have a beginning, or none of its own name any more. */
const BEGINNINGS = new Set<string>([
  NOTIFICATIONS.sessionOpened,
  NOTIFICATIONS.entryAppended,
  NOTIFICATIONS.sessionInfoChanged,
]);

export class Workbench implements Disposable {
  readonly model = new SessionModel();
  readonly server: Server;
  readonly log: LogOutputChannel;
  readonly #focus = new EventEmitter<void>();
  readonly #disposables: Disposable[] = [this.#focus];
  /** The session files to come back to after a restart, by folder. */
  readonly #files = new Map<string, string>();
  #folder: string | undefined;

  /** Another folder is meant now. */
  readonly onDidChangeFocus = this.#focus.event;

  constructor(server: Server, log: LogOutputChannel) {
    this.server = server;
    this.log = log;
    this.#disposables.push(
      server.onPush(({ method, params }) => this.#take(method, params)),
      server.onDidChangeHealth((health) => {
        if (health === 'running') void this.#catchUp();
        else this.model.clear();
      }),
      server.onDidEnd(() => this.#tellWhatIsLost()),
      window.onDidChangeActiveTextEditor((editor) => this.#follow(editor?.document.uri)),
      workspace.onDidChangeWorkspaceFolders((change) => {
        this.#folder = undefined;
        this.#follow(window.activeTextEditor?.document.uri);
        this.#focus.fire();
        if (server.health === 'running') void this.#meet(change.added.map(uriOf));
        else if (server.health === 'stopped' && this.folders.length > 0) void server.restart();
      }),
    );
    this.#follow(window.activeTextEditor?.document.uri);
  }

  /** Folders a server can work in. */
  get folders(): readonly { name: string; uri: Uri; workspace: string }[] {
    return (workspace.workspaceFolders ?? [])
      .filter(({ uri }) => uri.scheme === 'file')
      .map((folder) => ({ name: folder.name, uri: folder.uri, workspace: uriOf(folder) }));
  }

  /** The folder that is meant: that of the focused editor, else the last one, else the first. */
  get folder(): { name: string; uri: Uri; workspace: string } | undefined {
    return this.folders.find(({ workspace }) => workspace === this.#folder) ?? this.folders[0];
  }

  /** The session that is meant. */
  get session(): Session | undefined {
    const folder = this.folder;
    return folder === undefined ? this.model.all().at(-1) : this.model.current(folder.workspace);
  }

  /** Whom a command is about, where nothing else is said. */
  get address(): Address {
    const folder = this.folder;
    return folder === undefined ? {} : { workspace: folder.workspace };
  }

  /** Ask the server; starts it where it does not run. `session`: that one instead of the one that is meant. */
  async ask<C extends Command>(
    command: C,
    args: Arguments<C>,
    options: Asking & { session?: string } = {},
  ): Promise<Result<C>> {
    if (this.server.health === 'stopped') await this.server.restart();
    await this.server.settled();
    const { session } = options;
    const address = session === undefined ? this.address : { sessionId: session };
    return this.server.execute(command, { ...args, ...address }, options);
  }

  /** Ask for something that makes another session the current one. */
  async open(state: Promise<SessionState>): Promise<Session> {
    const told = await state;
    return this.model.told(this.folder?.workspace ?? '', told, true);
  }

  /**
   * Do something for a person: what fails is told readably, what was cancelled is not told at all. Nothing waits
   * until the person has read it.
   */
  async attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      reportError(error, this.server, this.log).catch((failed: unknown) => this.log.error(String(failed)));
      return undefined;
    }
  }

  #take(method: string, params: Push): void {
    this.model.apply(method, params);
    const { workspace = '', sessionId } = params;
    if (this.model.current(workspace)?.id !== sessionId) return;
    this.#remember(workspace);
    if (BEGINNINGS.has(method)) void this.#learnBeginning(sessionId);
  }

  /** Commands that were waiting tell it themselves; a run is waited for by nobody. */
  #tellWhatIsLost(): void {
    const lost = this.model.all().filter(({ running }) => running);
    if (lost.length === 0) return;
    const titles = lost.map((session) => `“${titleOf(session)}”`).join(', ');
    const show = t('Show Log');
    void this.attempt(async () => {
      const chosen = await window.showWarningMessage(
        t('pi: the server ended while the agent worked in {0}. What was not finished is lost.', titles),
        show,
      );
      if (chosen === show) await commands.executeCommand('piLs.showLog');
    });
  }

  /** A session without a name is called by what was said first in it. */
  async #learnBeginning(id: string | undefined): Promise<void> {
    const session = id === undefined ? undefined : this.model.get(id);
    if (session === undefined || session.beginning !== undefined || session.state.name?.trim()) return;
    try {
      const first = { filter: 'user-only', limit: 1 } as const;
      const { nodes } = await this.server.execute(COMMANDS.getTree, { ...first, sessionId: session.id });
      const text = nodes.find(({ role }) => role === 'user')?.text;
      if (text !== undefined) this.model.toldBeginning(session.id, text);
    } catch (error) {
      this.log.debug(`no beginning: ${String(error)}`);
    }
  }

  #remember(workspace: string): void {
    const session = this.model.current(workspace);
    if (session !== undefined) this.#files.set(workspace, session.state.sessionFile);
  }

  async #catchUp(): Promise<void> {
    await this.#meet(this.folders.map(({ workspace }) => workspace));
  }

  /** Learn a folder's current session; after a restart that is the one it had before. */
  async #meet(workspaces: readonly string[]): Promise<void> {
    for (const workspace of workspaces) {
      try {
        const path = this.#files.get(workspace);
        const state =
          (path === undefined ? undefined : await this.#reopen(workspace, path)) ??
          (await this.server.execute(COMMANDS.sessionState, { workspace }));
        const session = this.model.told(workspace, state, true);
        const usage = await this.server.execute(COMMANDS.contextUsage, { sessionId: session.id });
        this.model.toldUsage(session.id, usage);
        this.#remember(workspace);
        void this.#learnBeginning(session.id);
      } catch (error) {
        if (!(error instanceof ServerNotRunning)) this.log.debug(`${workspace}: ${String(error)}`);
      }
    }
  }

  async #reopen(workspace: string, path: string): Promise<SessionState | undefined> {
    try {
      return await this.server.execute(COMMANDS.openSession, { workspace, path });
    } catch {
      return undefined; // a session that was never written is gone with its server
    }
  }

  #follow(uri: Uri | undefined): void {
    if (uri === undefined) return;
    const found =
      uri.scheme === SCHEME
        ? this.model.get(new URLSearchParams(uri.query).get('session') ?? '')?.workspace
        : workspace.getWorkspaceFolder(uri)?.uri.toString();
    if (found === undefined || found === this.#folder) return;
    this.#folder = found;
    this.#focus.fire();
  }

  dispose(): void {
    for (const disposable of this.#disposables) disposable.dispose();
  }
}
