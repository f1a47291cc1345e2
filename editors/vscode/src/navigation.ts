/** Going to another entry, with or without a summary of what is left behind. Files are never touched. */

import { ProgressLocation, QuickPickItemKind, window, type QuickPickItem } from 'vscode';

import { leafOrBelow, lengthOfBranch, millis, otherEnds, type Row } from './arrangement';
import type { Register } from './commands';
import * as configuration from './configuration';
import { t } from './l10n';
import { ago, iconOf } from './nodeTexts';
import type { Prompting } from './prompting';
import { COMMANDS, type NavigationResult, type TreeNode } from './protocol';
import { titleOf } from './sessionModel';
import { lineOf, type SessionTree } from './sessionTree';
import type { Workbench } from './workbench';

interface Summary {
  summarize: boolean;
  customInstructions?: string;
}

interface NodeItem extends QuickPickItem {
  node?: TreeNode;
}

export class Navigation {
  readonly #workbench: Workbench;
  readonly #tree: SessionTree;
  readonly #prompting: Prompting;

  constructor(workbench: Workbench, tree: SessionTree, prompting: Prompting) {
    this.#workbench = workbench;
    this.#tree = tree;
    this.#prompting = prompting;
  }

  register(register: Register): void {
    register('piLs.switchBranch', () => this.switchBranch());
    register('piLs.goToEntry', (row?: Row) => this.#on(row, (node) => this.goTo(node)));
    register('piLs.goToEntryAndSummarize', (row?: Row) =>
      this.#on(row, (node) => this.#go(node.id, { summarize: true })),
    );
    register('piLs.goToEntryAndSummarizeWithFocus', (row?: Row) =>
      this.#on(row, async (node) => {
        const summary = await this.#askForFocus();
        if (summary !== undefined) await this.#go(node.id, summary);
      }),
    );
    register('piLs.forkFromEntry', (row?: Row) => this.#on(row, (node) => this.fork(node)));
  }

  async #on(row: Row | undefined, act: (node: TreeNode) => Promise<void>): Promise<void> {
    const node = this.#tree.nodeOf(row);
    if (node === undefined) await this.switchBranch();
    else await act(node);
  }

  /** Choose an entry of the current path or the end of another one, and go there. */
  async switchBranch(): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) {
      await this.#workbench.ask(COMMANDS.sessionState, {}); // says that there is none
      return;
    }
    // Of a long session it takes a while; the box is there at once, and busy.
    const nodes = this.#tree.load(session.id, { filter: 'no-tools' });
    const items = nodes.then((loaded) => branchItems(loaded, Date.now()));
    const chosen = await window.showQuickPick(items, {
      title: titleOf(session),
      placeHolder: t('Where should the conversation go on?'),
      matchOnDescription: true,
      matchOnDetail: true,
    });
    if (chosen?.node !== undefined) await this.goTo(chosen.node, await nodes);
  }

  /** Go to an entry; asks for a summary where something would be left behind. Closing the question stays. */
  async goTo(node: TreeNode, nodes: readonly TreeNode[] = this.#tree.nodes): Promise<void> {
    if (node.id === this.#workbench.session?.state.leafId) {
      await window.showInformationMessage(t('pi: you are there already.'));
      return;
    }
    const leaf = leafOrBelow(node, nodes);
    const leavesNothing = leaf !== undefined && (await this.#isLeaf(leaf));
    const summary = leavesNothing ? { summarize: false } : await this.#askForSummary();
    if (summary !== undefined) await this.#go(node.id, summary);
  }

  /** Whether no message follows on the path: a filter or a search marks the last node it shows as the leaf. */
  async #isLeaf({ id }: TreeNode): Promise<boolean> {
    const only = { rootId: id, depth: 0, filter: 'default', limit: 1 } as const;
    const [found] = (await this.#workbench.ask(COMMANDS.getTree, only)).nodes;
    return found?.id === id && found.isLeaf;
  }

  async #askForSummary(): Promise<Summary | undefined> {
    const wanted = configuration.summaryChoice();
    if (wanted !== 'ask') return { summarize: wanted === 'summarize' };
    const settings = await this.#branchSummarySettings();
    if (settings.skipPrompt) return { summarize: false };
    const none = { label: `$(arrow-right) ${t('No summary')}`, detail: t('Just go there. Costs nothing.') };
    const plain = {
      label: `$(git-merge) ${t('Summarize')}`,
      detail: t('What is left behind is summarized and told the model at the new place.'),
    };
    const focused = { label: `$(edit) ${t('Summarize with focus…')}`, detail: t('You say what matters.') };
    const items = settings.enabled ? [plain, focused, none] : [none, plain, focused];
    const chosen = await window.showQuickPick(items, { placeHolder: t('Summarize the branch you leave?') });
    if (chosen === undefined) return undefined;
    return chosen === focused ? this.#askForFocus() : { summarize: chosen === plain };
  }

  async #branchSummarySettings(): Promise<{ enabled: boolean; skipPrompt: boolean }> {
    const { settings } = await this.#workbench.ask(COMMANDS.reloadSettings, {});
    const section = (settings as { branchSummary?: { enabled?: unknown; skipPrompt?: unknown } } | null)
      ?.branchSummary;
    return { enabled: section?.enabled === true, skipPrompt: section?.skipPrompt === true };
  }

  async #askForFocus(): Promise<Summary | undefined> {
    const focus = await window.showInputBox({
      placeHolder: t('What should the summary pay attention to?'),
      ignoreFocusOut: true,
    });
    if (focus === undefined) return undefined;
    const customInstructions = focus.trim();
    return customInstructions ? { summarize: true, customInstructions } : { summarize: true };
  }

  async #go(targetId: string, summary: Summary): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) return;
    const result = await this.#navigate(session.id, targetId, summary);
    if (result.cancelled) {
      void window.showInformationMessage(t('pi: cancelled. You are where you were.'));
      return;
    }
    if (result.editorText) {
      void this.#workbench.attempt(() => this.#prompting.ask(result.editorText));
      return;
    }
    if (result.leafId !== result.oldLeafId)
      void this.#workbench.attempt(() => this.#offerWayBack(session.id, result));
  }

  #navigate(session: string, targetId: string, summary: Summary): Promise<NavigationResult> {
    if (!summary.summarize) return this.#workbench.ask(COMMANDS.navigateTree, { targetId }, { session });
    const options = {
      location: ProgressLocation.Notification,
      title: t('pi: branch summary'),
      cancellable: true,
    };
    return Promise.resolve(
      window.withProgress(options, (notification, token) =>
        this.#workbench.ask(
          COMMANDS.navigateTree,
          { targetId, ...summary },
          {
            session,
            token,
            progress: ({ message }) => notification.report(message === undefined ? {} : { message }),
          },
        ),
      ),
    );
  }

  async #offerWayBack(session: string, { oldLeafId }: NavigationResult): Promise<void> {
    const back = t('Go Back');
    const chosen = await window.showInformationMessage(
      t('pi: moved. Files are as they were.'),
      ...(oldLeafId === null ? [] : [back]),
    );
    if (chosen === back)
      await this.#workbench.ask(COMMANDS.navigateTree, { targetId: oldLeafId }, { session });
  }

  /** Begin a new session with what was said before one of the user's messages. */
  async fork(node: TreeNode): Promise<void> {
    const session = this.#workbench.session;
    if (session === undefined) return;
    const { session: state, text } = await this.#workbench.ask(
      COMMANDS.forkSession,
      { entryId: node.id },
      { session: session.id },
    );
    this.#workbench.model.told(session.workspace, state, true);
    await this.#prompting.ask(text);
  }
}

/** A line of a quick pick: no icon syntax, and short enough to leave room for what is said about it. */
function inPick(line: string): string {
  const plain = line.replace(/\$\(/g, '$ (');
  return plain.length > 58 ? `${plain.slice(0, 57).replace(/[\ud800-\udbff]$/, '')}…` : plain;
}

/** Entries of either kind that are offered, the newest; further back leads the tree. */
const MOST_OFFERED = 300;

/** The rows of "Switch branch": the ends of the other branches, then the path from its end. */
function branchItems(nodes: readonly TreeNode[], now: number): NodeItem[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const path = nodes.filter((node) => node.onPath).reverse();
  const others = otherEnds(nodes);
  const item = (node: TreeNode, description: string): NodeItem => ({
    label: `$(${iconOf(node)}) ${inPick(lineOf(node))}`,
    description,
    node,
  });
  const separator = (label: string): NodeItem => ({ label, kind: QuickPickItemKind.Separator });
  return [
    ...(others.length > 0 ? [separator(t('other paths'))] : []),
    ...others
      .slice(0, MOST_OFFERED)
      .map((node) =>
        item(node, t('{0} entries · {1}', lengthOfBranch(node, byId), ago(millis(node.timestamp), now))),
      ),
    separator(t('current path')),
    ...path
      .slice(0, MOST_OFFERED)
      .map((node) => item(node, node.isLeaf ? t('you are here') : ago(millis(node.timestamp), now))),
  ];
}
