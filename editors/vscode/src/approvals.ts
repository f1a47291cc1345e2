/** Questions of the agent: may it run this? One at a time, and for edits with the change to look at. */

import { commands, Uri, window, workspace, type Disposable, type MessageItem } from 'vscode';

import { proposedText, type ToolArguments } from './approvalText';
import type { Documents } from './documents';
import { t } from './l10n';
import { COMMANDS, NOTIFICATIONS, textField, type Decision, type Push } from './protocol';
import { fence } from './transcriptText';
import type { Workbench } from './workbench';

interface Choice extends MessageItem {
  decision?: Decision;
}

interface Question {
  id: string;
  session: string;
  toolName: string;
  args: ToolArguments;
  summary: string;
}

export class Approvals implements Disposable {
  readonly #workbench: Workbench;
  readonly #documents: Documents;
  readonly #open = new Map<string, Question>();
  readonly #proposals = new Map<string, string>();
  readonly #listening: Disposable;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(workbench: Workbench, documents: Documents) {
    this.#workbench = workbench;
    this.#documents = documents;
    documents.provide('proposal', (query) => this.#proposals.get(query.get('approval') ?? '') ?? '');
    this.#listening = workbench.server.onPush(({ method, params }) => this.#take(method, params));
  }

  #take(method: string, params: Push): void {
    const id = textField(params, 'approvalId');
    if (method === NOTIFICATIONS.approvalResolved) this.#open.delete(id);
    if (method !== NOTIFICATIONS.approvalRequest) return;
    const question: Question = {
      id,
      session: params.sessionId ?? '',
      toolName: textField(params, 'toolName'),
      args: params['args'] ?? {},
      summary: textField(params, 'summary'),
    };
    this.#open.set(id, question);
    this.#queue = this.#queue.then(() => this.#workbench.attempt(() => this.#ask(question)));
  }

  async #ask(question: Question): Promise<void> {
    if (!this.#open.has(question.id)) return; // answered elsewhere meanwhile
    const decision = await this.#decide(question);
    this.#proposals.delete(question.id);
    if (!this.#open.delete(question.id)) return;
    await this.#workbench.ask(
      COMMANDS.answerApproval,
      { approvalId: question.id, decision },
      { session: question.session },
    );
  }

  /** A modal question; with the change beside it, it is a notification, so that the change can be read. */
  async #decide(question: Question): Promise<Decision> {
    const once: Choice = { title: t('Allow Once'), decision: 'once' };
    const session: Choice = { title: t('Allow in This Session'), decision: 'session' };
    const always: Choice = { title: t('Always Allow Here'), decision: 'always' };
    const deny: Choice = { title: t('Deny'), decision: 'no', isCloseAffordance: true };
    const show: Choice = { title: t('Show Change') };
    const hasChange = question.toolName === 'edit' || question.toolName === 'write';
    const chosen = await window.showWarningMessage(
      t('pi wants to use the tool “{0}”.', question.toolName),
      { modal: true, detail: question.summary },
      ...[once, session, always, ...(hasChange ? [show] : []), deny],
    );
    if (chosen !== show) return chosen?.decision ?? 'no';
    await this.#showChange(question);
    const after = await window.showWarningMessage(t('pi: make this change?'), once, session, deny);
    if (after !== undefined) return after.decision ?? 'no';
    return this.#open.has(question.id) ? this.#decide(question) : 'no';
  }

  async #showChange(question: Question): Promise<void> {
    const folder = this.#workbench.folder?.uri ?? Uri.file('/');
    const path = textField(question.args, 'path');
    const file = path.startsWith('/') ? folder.with({ path }) : Uri.joinPath(folder, path);
    const before = await textOf(file);
    this.#proposals.set(
      question.id,
      proposedText(question.toolName, question.args, before) ??
        fence(JSON.stringify(question.args, null, 2), 'json'),
    );
    const proposed = this.#documents.address('proposal', path, { approval: question.id }, '');
    this.#documents.refresh(proposed);
    await commands.executeCommand('vscode.diff', file, proposed, t('{0}: what pi would change', path));
  }

  dispose(): void {
    this.#listening.dispose();
  }
}

/** A file's text as the editor has it, empty where there is no such file yet. */
async function textOf(file: Uri): Promise<string> {
  try {
    return (await workspace.openTextDocument(file)).getText();
  } catch {
    return '';
  }
}
