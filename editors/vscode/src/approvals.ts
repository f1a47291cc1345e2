/** Questions of the agent: may it do this? One modal at a time, and what would be done to look at before. */

import { basename } from 'node:path';
import { homedir } from 'node:os';

import { commands, TabInputText, TabInputTextDiff, Uri, window, workspace } from 'vscode';
import type { Disposable, MessageItem } from 'vscode';

import { callText, locate, proposedText, type ToolArguments } from './approvalText';
import type { Register } from './commands';
import type { Documents } from './documents';
import { t } from './l10n';
import { COMMANDS, NOTIFICATIONS, textField, type Decision, type Entry, type Push } from './protocol';
import { titleOf } from './sessionModel';
import { SCHEME, type Workbench } from './workbench';

interface Choice extends MessageItem {
  decision?: Decision;
}

interface Question {
  id: string;
  session: string;
  toolName: string;
  args: ToolArguments;
  /** Of long arguments only the beginning came along. */
  truncated: boolean;
  summary: string;
}

/** An entry and the one before it on its path. */
interface Place {
  id: string;
  parentId: string | null;
}

/** Entries that may stand between a call and the entry before it in the file: other programs write too. */
const NEAR = 50;

export class Approvals implements Disposable {
  readonly #workbench: Workbench;
  readonly #documents: Documents;
  readonly #open = new Map<string, Question>();
  readonly #shown = new Map<string, string>();
  /** Each session's newest answer of a model: the one with the calls that are asked about. */
  readonly #answers = new Map<string, Place>();
  readonly #disposables: Disposable[];
  #queue: Promise<unknown> = Promise.resolve();

  constructor(workbench: Workbench, documents: Documents) {
    this.#workbench = workbench;
    this.#documents = documents;
    documents.provide('proposal', (query) => this.#shown.get(query.get('approval') ?? '') ?? '');
    this.#disposables = [
      workbench.server.onPush(({ method, params }) => this.#take(method, params)),
      workbench.server.onDidChangeHealth((health) => {
        if (health !== 'running') this.#forgetAll(); // its questions went with it
      }),
    ];
  }

  register(register: Register): void {
    register('piLs.answerQuestion', () => this.askAgain());
  }

  #take(method: string, params: Push): void {
    const id = textField(params, 'approvalId');
    const session = params.sessionId ?? '';
    if (method === NOTIFICATIONS.entryAppended) {
      const entry = params['entry'] as (Place & { role?: string }) | undefined;
      if (entry?.role === 'assistant') this.#answers.set(session, entry);
    }
    if (method === NOTIFICATIONS.approvalResolved) this.#forget(id);
    if (method !== NOTIFICATIONS.approvalRequest) return;
    const question: Question = {
      id,
      session,
      toolName: textField(params, 'toolName'),
      args: params['args'] ?? {},
      truncated: params['truncated'] === true,
      summary: textField(params, 'summary'),
    };
    this.#open.set(id, question);
    this.#enqueue(question);
  }

  /** Ask once more what was put aside: the oldest question of the session that is meant, else of any. */
  async askAgain(): Promise<void> {
    const open = [...this.#open.values()];
    const question = open.find(({ session }) => session === this.#workbench.session?.id) ?? open[0];
    if (question === undefined) await window.showInformationMessage(t('pi: nothing is asked.'));
    else this.#enqueue(question);
  }

  #enqueue(question: Question): void {
    this.#queue = this.#queue.then(() => this.#workbench.attempt(() => this.#ask(question)));
  }

  async #ask(question: Question): Promise<void> {
    if (!this.#open.has(question.id)) return; // answered elsewhere meanwhile
    const decision = await this.#askModally(question);
    if (decision !== undefined) {
      await this.#answer(question, decision);
      return;
    }
    await this.#show(question);
    // Read at leisure: the next question does not wait for this one's answer.
    void this.#workbench.attempt(() => this.#askBeside(question));
  }

  /** The decision, or undefined for a person who wants to see it first, which is what Enter does. */
  async #askModally(question: Question): Promise<Decision | undefined> {
    const show: Choice = { title: changesFile(question) ? t('Show Change') : t('Show Call') };
    const always: Choice = { title: t('Always Allow Here'), decision: 'always' };
    const { once, session, deny } = choices();
    const chosen = await window.showWarningMessage(
      t('pi wants to use the tool “{0}”.', question.toolName),
      { modal: true, detail: `${question.summary}\n\n${this.#whereabouts(question)}` },
      ...[show, once, session, always, deny],
    );
    return chosen === show ? undefined : (chosen?.decision ?? 'no');
  }

  /** A notification leaves the editor free. One that is closed leaves the question open: the meter tells. */
  async #askBeside(question: Question): Promise<void> {
    const { once, session, deny } = choices();
    const asked = t('pi: {0}? ({1})', question.summary, this.#whereabouts(question));
    const chosen = await window.showWarningMessage(asked, once, session, deny);
    if (chosen?.decision !== undefined) await this.#answer(question, chosen.decision);
  }

  #whereabouts({ session }: Question): string {
    const known = this.#workbench.model.get(session);
    return known === undefined
      ? ''
      : t('session “{0}” in {1}', titleOf(known), basename(known.state.cwd) || known.state.cwd);
  }

  async #answer(question: Question, decision: Decision): Promise<void> {
    const isOpen = this.#open.has(question.id);
    this.#forget(question.id);
    const { answered } = isOpen
      ? await this.#workbench.ask(
          COMMANDS.answerApproval,
          { approvalId: question.id, decision },
          { session: question.session },
        )
      : { answered: false };
    // Not waited for: other questions are behind this one.
    if (!answered) void window.showInformationMessage(t('pi: this is not asked any more, and was not done.'));
  }

  // --- looking at it

  async #show(question: Question): Promise<void> {
    const args = question.truncated ? await this.#wholeArguments(question) : question.args;
    if (!changesFile(question)) {
      const { text, suffix } = callText(question.toolName, args);
      await this.#documents.show(this.#document(question, question.toolName, text, suffix));
      return;
    }
    const path = textField(args, 'path');
    const folder = this.#workbench.model.get(question.session)?.state.cwd ?? homedir();
    const file = Uri.file(locate(path, folder, homedir()));
    const before = await textOf(file);
    const proposed = proposedText(question.toolName, args, before ?? '');
    if (proposed === undefined) {
      const { text, suffix } = callText(question.toolName, args);
      await this.#documents.show(this.#document(question, path, text, suffix));
      return;
    }
    const after = this.#document(question, path, proposed, '');
    const left = before === undefined ? this.#document({ ...question, id: '' }, path, '', '') : file;
    await commands.executeCommand('vscode.diff', left, after, t('{0}: what pi would change', path));
  }

  #document({ id, session }: Question, title: string, text: string, suffix: string): Uri {
    this.#shown.set(id, text);
    const address = this.#documents.address('proposal', title, { session, approval: id }, suffix);
    this.#documents.refresh(address);
    return address;
  }

  /** A call as the session's file has it. */
  async #wholeArguments({ session, toolName, args }: Question): Promise<ToolArguments> {
    const place = this.#answers.get(session);
    if (place === undefined) return args;
    const since = place.parentId === null ? {} : { since: place.parentId };
    const { entries } = await this.#workbench.ask(
      COMMANDS.getEntries,
      { ...since, limit: NEAR },
      { session },
    );
    const calls = callsOf(entries.find(({ id }) => id === place.id)).filter(({ name }) => name === toolName);
    const path = textField(args, 'path');
    const call = calls.find(({ whole }) => textField(whole, 'path') === path) ?? calls[0];
    return call?.whole ?? args;
  }

  // --- and putting it away

  #forget(id: string): void {
    if (!this.#open.delete(id)) return;
    this.#shown.delete(id);
    const tabs = window.tabGroups.all.flatMap((group) => group.tabs);
    const own = tabs.filter(({ input }) => approvalOf(input) === id);
    void window.tabGroups.close(own, true);
  }

  #forgetAll(): void {
    for (const id of this.#open.keys()) this.#forget(id);
    this.#answers.clear();
  }

  dispose(): void {
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

const changesFile = ({ toolName }: Question): boolean => toolName === 'edit' || toolName === 'write';

const choices = (): Record<'once' | 'session' | 'deny', Choice> => ({
  once: { title: t('Allow Once'), decision: 'once' },
  session: { title: t('Allow in This Session'), decision: 'session' },
  deny: { title: t('Deny'), decision: 'no', isCloseAffordance: true },
});

function callsOf(entry: Entry | undefined): { name: string; whole: ToolArguments }[] {
  const content = entry?.message?.content;
  if (!Array.isArray(content)) return [];
  return content
    .filter(({ type }) => type === 'toolCall')
    .map(({ name, arguments: given }) => ({ name: name ?? '', whole: given ?? {} }));
}

/** Which question a tab is about, empty for the tabs of others. */
function approvalOf(input: unknown): string {
  const uri =
    input instanceof TabInputTextDiff
      ? input.modified
      : input instanceof TabInputText
        ? input.uri
        : undefined;
  return uri?.scheme === SCHEME ? (new URLSearchParams(uri.query).get('approval') ?? '') : '';
}

/** A file's text as the editor has it, undefined where there is no such file yet. */
async function textOf(file: Uri): Promise<string | undefined> {
  try {
    return (await workspace.openTextDocument(file)).getText();
  } catch {
    return undefined;
  }
}
