/** The view of the session's tree: loading it, following it, filters, finding, and the actions on an entry. */

import {
  commands,
  env,
  EventEmitter,
  FileDecoration,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  TreeItemCollapsibleState,
  Uri,
  window,
  type Disposable,
  type FileDecorationProvider,
  type Memento,
  type TreeDataProvider,
  type TreeView,
} from 'vscode';

import { arrange, millis, type Row } from './arrangement';
import type { Register } from './commands';
import { t } from './l10n';
import { tokens } from './meter';
import { ago, iconOf, kindName } from './nodeTexts';
import { COMMANDS, NOTIFICATIONS, TREE_FILTERS, type Push, type TreeFilter, type TreeNode } from './protocol';
import { titleOf, type Session } from './sessionModel';
import type { Transcripts } from './transcript';
import type { Workbench } from './workbench';

export const TREE_VIEW = 'piLs.tree';

const NODE_SCHEME = 'pi-ls-node';
const PAGE = 2_000;
/** Entries of a session whose tree is shown whole; of a longer one, about so many at its end are shown. */
const MOST_SHOWN = 4_000;
/** What one search finds at most. */
const MOST_FOUND = 500;
/** Nodes that are loaded at most, whatever is asked for. */
const MOST_NODES = 20_000;
const SETTLE_MS = 150;
const FILTER_KEY = 'piLs.tree.filter';

/** Events after which a person wants to see where they are now. */
const MOVING = new Set<string>([NOTIFICATIONS.sessionTree, NOTIFICATIONS.compactionEnd]);

/** Filters that hide so little that a long session's tree stays long. */
const FULL = new Set<TreeFilter>(['default', 'no-tools', 'all']);

/** Events after which the tree is another one. */
const RELOADING = new Set<string>([
  NOTIFICATIONS.sessionTree,
  NOTIFICATIONS.sessionReloaded,
  NOTIFICATIONS.compactionEnd,
  NOTIFICATIONS.entryAppended,
]);

export class SessionTree implements TreeDataProvider<Row>, FileDecorationProvider, Disposable {
  readonly #workbench: Workbench;
  readonly #transcripts: Transcripts;
  readonly #state: Memento;
  readonly #changed = new EventEmitter<undefined>();
  readonly #decorated = new EventEmitter<undefined>();
  readonly #view: TreeView<Row>;
  readonly #disposables: Disposable[];
  #rows: Row[] = [];
  #parents = new Map<Row, Row>();
  #nodes: TreeNode[] = [];
  #shown: string | undefined;
  #stale = true;
  #query = '';
  #timer: NodeJS.Timeout | undefined;
  #loading = 0;
  /** What was left out of the tree, in a sentence. */
  #leftOut = '';
  /** Somebody went elsewhere, looks for something, or sees another session: that is scrolled to. */
  #revealing = true;

  readonly onDidChangeTreeData = this.#changed.event;
  readonly onDidChangeFileDecorations = this.#decorated.event;

  constructor(workbench: Workbench, transcripts: Transcripts, state: Memento) {
    this.#workbench = workbench;
    this.#transcripts = transcripts;
    this.#state = state;
    this.#view = window.createTreeView(TREE_VIEW, { treeDataProvider: this, showCollapseAll: true });
    this.#disposables = [
      this.#changed,
      this.#decorated,
      this.#view,
      window.registerFileDecorationProvider(this),
      this.#view.onDidChangeVisibility(() => this.#settle()),
      workbench.model.onDidChange(() => this.#follow()),
      workbench.onDidChangeFocus(() => this.#follow()),
      workbench.server.onPush(({ method, params }) => this.#take(method, params)),
    ];
  }

  register(register: Register): void {
    register('piLs.tree.refresh', () => this.reload());
    register('piLs.tree.filter', () => this.chooseFilter());
    register('piLs.tree.find', () => this.find());
    register('piLs.tree.clearFind', () => this.#findBy(''));
    register('piLs.showEntry', (row?: Row) =>
      this.#on(row, (node, id) => this.#transcripts.showEntry(id, node)),
    );
    register('piLs.setLabel', (row?: Row) => this.#on(row, (node, id) => this.setLabel(node, id)));
    register('piLs.copyEntry', (row?: Row) =>
      this.#on(row, async (node, id) => env.clipboard.writeText(await this.#transcripts.entryText(id, node))),
    );
    register('piLs.copyEntryId', (row?: Row) => this.#on(row, (node) => env.clipboard.writeText(node.id)));
  }

  /** The nodes that are loaded, of the session that is meant. */
  get nodes(): readonly TreeNode[] {
    return this.#nodes;
  }

  /** The node of a row that was clicked, else of the one that is selected. */
  nodeOf(row: Row | undefined): TreeNode | undefined {
    return row?.node ?? this.#view.selection[0]?.node;
  }

  get #filter(): TreeFilter {
    const kept = this.#state.get<TreeFilter>(FILTER_KEY, 'default');
    return TREE_FILTERS.includes(kept) ? kept : 'default';
  }

  async #on(row: Row | undefined, act: (node: TreeNode, session: string) => unknown): Promise<void> {
    const node = this.nodeOf(row);
    const session = this.#workbench.session;
    if (node === undefined || session === undefined) {
      await window.showInformationMessage(t('pi: select an entry in the session tree first.'));
      return;
    }
    await act(node, session.id);
  }

  // --- following the session

  #follow(): void {
    const session = this.#workbench.session;
    this.#describe(session);
    if (session?.id === this.#shown) return;
    this.#shown = session?.id;
    this.#query = '';
    this.#revealing = true;
    this.#show([]);
    this.#settle(true);
  }

  #take(method: string, params: Push): void {
    if (MOVING.has(method)) this.#revealing = true;
    if (params.sessionId === this.#workbench.session?.id && RELOADING.has(method)) this.#settle(true);
  }

  /** Load once things have calmed down, and only for somebody who looks. */
  #settle(stale = this.#stale): void {
    this.#stale = stale;
    if (!this.#stale || !this.#view.visible) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      void this.#workbench.attempt(() => this.reload());
    }, SETTLE_MS);
  }

  /** Load the tree of the session that is meant, page by page. */
  async reload(): Promise<void> {
    const session = this.#workbench.session;
    const turn = ++this.#loading;
    this.#stale = false;
    const { nodes, leftOut } =
      session === undefined ? { nodes: [], leftOut: '' } : await this.#loadShown(session);
    if (turn !== this.#loading) return; // somebody asked again meanwhile
    this.#shown = session?.id;
    this.#leftOut = leftOut;
    this.#show(nodes);
    this.#describe(session);
    const isEmpty = session !== undefined && nodes.length === 0 && this.#query === '';
    void commands.executeCommand('setContext', 'piLs.isEmpty', isEmpty);
  }

  /** What the view shows, and what it leaves out. */
  async #loadShown({ id, state }: Session): Promise<{ nodes: TreeNode[]; leftOut: string }> {
    const filter = this.#filter;
    if (this.#query) {
      const nodes = await this.load(id, { filter, query: this.#query }, MOST_FOUND);
      return { nodes, leftOut: nodes.length < MOST_FOUND ? '' : t('There may be more.') };
    }
    const root = FULL.has(filter) ? await this.#beginningOfEnd(id, state.messageCount) : undefined;
    if (root === undefined) {
      const nodes = await this.load(id, { filter });
      const more = t('The first {0} entries. Use Find for the others.', MOST_NODES);
      return { nodes, leftOut: nodes.length < MOST_NODES ? '' : more };
    }
    const nodes = await this.load(id, { filter, rootId: root });
    return {
      nodes,
      leftOut: t('The newest {0} entries. Use Find or a filter for the others.', nodes.length),
    };
  }

  /**
   * The message of the user from which on the tree of a very long session is shown: people go on at its end, and
   * neither the server nor the view is to be kept busy with all of it at every new entry.
   */
  async #beginningOfEnd(session: string, messages: number): Promise<string | undefined> {
    if (messages <= MOST_SHOWN) return undefined;
    const asked = (await this.load(session, { filter: 'user-only' })).filter(({ onPath }) => onPath);
    const wanted = Math.ceil((asked.length * MOST_SHOWN) / messages);
    return asked.at(-wanted)?.id;
  }

  /** Nodes of a session in the server's order, about `most` at most. */
  async load(
    session: string,
    what: { filter: TreeFilter; query?: string; rootId?: string },
    most = MOST_NODES,
  ): Promise<TreeNode[]> {
    const nodes: TreeNode[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#workbench.ask(
        COMMANDS.getTree,
        { ...what, limit: Math.min(PAGE, most), ...(cursor === undefined ? {} : { cursor }) },
        { session },
      );
      nodes.push(...page.nodes);
      cursor = page.hasMore ? page.cursor : undefined;
    } while (cursor !== undefined && nodes.length < most);
    return nodes;
  }

  #show(nodes: TreeNode[]): void {
    this.#nodes = nodes;
    this.#rows = arrange(nodes);
    this.#parents = new Map();
    const pending = [...this.#rows];
    for (let row = pending.pop(); row !== undefined; row = pending.pop()) {
      for (const child of row.branch) this.#parents.set(child, row);
      pending.push(...row.branch);
    }
    this.#changed.fire(undefined);
    this.#decorated.fire(undefined);
    // Who has selected an entry is reading there, and is not taken away by every entry that is added.
    const isWanted = this.#revealing || (this.#query === '' && this.#view.selection.length === 0);
    const target = this.#query === '' ? this.#rows.find((row) => row.node.isLeaf) : this.#rows[0];
    if (target !== undefined && isWanted && this.#view.visible) {
      this.#revealing = false;
      this.#view.reveal(target, { select: false, focus: false }).then(undefined, () => undefined);
    }
  }

  #describe(session: Session | undefined): void {
    this.#view.description = session === undefined ? '' : titleOf(session);
    this.#view.message = this.#message(session);
    void commands.executeCommand('setContext', 'piLs.finding', this.#query !== '');
    void commands.executeCommand('setContext', 'piLs.hasSession', session !== undefined);
  }

  #message(session: Session | undefined): string {
    if (session === undefined) return '';
    const filter = this.#filter === 'default' ? '' : filterName(this.#filter);
    const shown = this.#query
      ? t('“{0}”: {1} found', this.#query, this.#nodes.length)
      : filter === ''
        ? ''
        : t('Shown: {0}', filter);
    return [shown, this.#leftOut].filter(Boolean).join(' · ');
  }

  // --- what VS Code asks for

  getChildren(row?: Row): Row[] {
    return row === undefined ? this.#rows : row.branch;
  }

  getParent(row: Row): Row | undefined {
    return this.#parents.get(row);
  }

  getTreeItem(row: Row): TreeItem {
    const { node, branch, size } = row;
    const folded = branch.length > 0 ? TreeItemCollapsibleState.Collapsed : TreeItemCollapsibleState.None;
    const item = new TreeItem(lineOf(node), folded);
    item.id = `${this.#shown ?? ''}/${node.id}${branch.length > 0 ? '/branch' : ''}`;
    item.iconPath = new ThemeIcon(branch.length > 0 ? 'git-branch' : iconOf(node), iconColor(node));
    item.resourceUri = Uri.from({
      scheme: NODE_SCHEME,
      path: `/${node.id}`,
      query: node.isLeaf ? 'leaf' : node.onPath ? 'path' : 'off',
    });
    if (branch.length > 0) item.description = t('branch of {0}', size);
    item.contextValue = ['entry', node.type === 'message' ? node.role : node.type, node.isLeaf ? 'leaf' : '']
      .filter(Boolean)
      .join(' ');
    item.command = { title: t('Show Entry'), command: 'piLs.showEntry', arguments: [row] };
    item.tooltip = `${kindName(node)} · ${t('{0} tokens', tokens(node.tokens))} · ${ago(millis(node.timestamp), Date.now())}\n\n${node.text}`;
    item.accessibilityInformation = { label: spokenNode(node, size) };
    return item;
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== NODE_SCHEME) return undefined;
    if (uri.query === 'leaf')
      return new FileDecoration('●', t('The current entry'), new ThemeColor('charts.blue'));
    if (uri.query === 'off') {
      return new FileDecoration(undefined, t('On another branch'), new ThemeColor('disabledForeground'));
    }
    return undefined;
  }

  // --- actions

  async chooseFilter(): Promise<void> {
    const items = TREE_FILTERS.map((filter) => ({
      label: filterName(filter),
      ...(filter === this.#filter ? { description: t('shown now') } : {}),
      filter,
    }));
    const chosen = await window.showQuickPick(items, {
      placeHolder: t('Which entries should the tree show?'),
    });
    if (chosen === undefined) return;
    await this.#state.update(FILTER_KEY, chosen.filter);
    await this.reload();
  }

  async find(): Promise<void> {
    const query = await window.showInputBox({
      placeHolder: t('Words that the entries hold'),
      value: this.#query,
    });
    if (query !== undefined) await this.#findBy(query.trim());
  }

  async #findBy(query: string): Promise<void> {
    this.#query = query;
    this.#revealing = true;
    await this.reload();
  }

  async setLabel(node: TreeNode, session: string): Promise<void> {
    const label = await window.showInputBox({
      placeHolder: t('A label for this entry; empty takes it away'),
      value: node.label ?? '',
    });
    if (label === undefined) return;
    await this.#workbench.ask(
      COMMANDS.setLabel,
      { entryId: node.id, label: label.trim() || null },
      { session },
    );
  }

  dispose(): void {
    clearTimeout(this.#timer);
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

function iconColor(node: TreeNode): ThemeColor | undefined {
  if (!node.onPath) return new ThemeColor('disabledForeground');
  if (node.type === 'compaction' || node.type === 'branch_summary') return new ThemeColor('charts.purple');
  return node.role === 'user' ? new ThemeColor('charts.blue') : undefined;
}

function spokenNode(node: TreeNode, size: number): string {
  const parts = [kindName(node), node.text];
  if (node.label) parts.push(t('label {0}', node.label));
  if (node.isLeaf) parts.push(t('current entry'));
  else if (!node.onPath)
    parts.push(size > 1 ? t('another branch of {0} entries', size) : t('another branch'));
  return parts.join(', ');
}

function filterName(filter: TreeFilter): string {
  switch (filter) {
    case 'default':
      return t('The conversation');
    case 'no-tools':
      return t('Without tools');
    case 'user-only':
      return t('Your messages only');
    case 'labeled-only':
      return t('Labeled entries only');
    case 'all':
      return t('Everything, state entries too');
  }
}

/** A node in one line: its label first, so that it is seen however narrow the view is. */
export function lineOf(node: TreeNode): string {
  const text = node.text.replace(/\s+/g, ' ').trim() || kindName(node);
  return node.label ? `[${node.label}] ${text}` : text;
}
