/** Talking to the agent: prompts from a box, a document or a selection; steering, queueing, stopping. */

import {
  commands,
  ThemeIcon,
  window,
  workspace,
  type Disposable,
  type QuickInputButton,
  type TextDocument,
} from 'vscode';

import type { Register } from './commands';
import { t } from './l10n';
import { COMMANDS, NOTIFICATIONS, textField, type Push } from './protocol';
import { quoteSelection } from './selectionText';
import type { Transcripts } from './transcript';
import type { Workbench } from './workbench';

const CONTEXT_KEY = 'piLs.promptDocuments';

export class Prompting implements Disposable {
  readonly #workbench: Workbench;
  readonly #transcripts: Transcripts;
  readonly #documents = new Map<string, string>();
  readonly #disposables: Disposable[];
  /** A prompt that could not be sent; it is in the box the next time. */
  #unsent = '';
  /** What the last answer of a session's run failed with. */
  readonly #failures = new Map<string, string>();

  constructor(workbench: Workbench, transcripts: Transcripts) {
    this.#workbench = workbench;
    this.#transcripts = transcripts;
    this.#disposables = [
      workspace.onDidCloseTextDocument(({ uri }) => this.#forget(uri.toString())),
      workbench.server.onPush(({ method, params }) => this.#take(method, params)),
    ];
  }

  /** A run that fails says so in the transcript; to somebody who does not see that, it is told here. */
  #take(method: string, params: Push): void {
    const id = params.sessionId ?? '';
    if (method === NOTIFICATIONS.agentEnd) {
      this.#failures.set(id, textField(params, 'errorMessage'));
    } else if (method === NOTIFICATIONS.agentSettled) {
      const failure = this.#failures.get(id);
      this.#failures.delete(id);
      if (failure && !this.#transcripts.isVisible(id)) {
        void this.#workbench.attempt(() => this.#tellFailure(id, failure));
      }
    }
  }

  async #tellFailure(id: string, failure: string): Promise<void> {
    const show = t('Show Transcript');
    const chosen = await window.showErrorMessage(`pi: ${failure}`, show);
    if (chosen === show) await this.#transcripts.show({}, id);
  }

  register(register: Register): void {
    register('piLs.prompt', () => this.ask());
    register('piLs.askAboutSelection', () => this.askAboutSelection());
    register('piLs.writePrompt', () => this.write(''));
    register('piLs.sendPrompt', () => this.sendDocument());
    register('piLs.steer', () =>
      this.#say(t('What should the agent know now?'), (text) => this.#steer(text)),
    );
    register('piLs.followUp', () =>
      this.#say(t('What should the agent do afterwards?'), (text) => this.#followUp(text)),
    );
    register('piLs.abort', () => this.#workbench.ask(COMMANDS.abort, {}));
    register('piLs.continue', () => this.#workbench.ask(COMMANDS.continue, {}));
    register('piLs.clearQueue', () => this.#workbench.ask(COMMANDS.clearQueue, {}));
    register('piLs.runShellCommand', () => this.runShellCommand());
  }

  /** Ask in a box; a text of several lines gets a document of its own, because a box has only one. */
  async ask(draft = this.#unsent): Promise<void> {
    if (draft.includes('\n')) {
      await this.write(draft);
      return;
    }
    const text = await this.#box(
      this.#running ? t('Queued until the agent is done') : t('What should pi do?'),
      draft,
    );
    if (text === undefined) return;
    this.#unsent = text;
    await this.#prompt(text);
    this.#unsent = '';
  }

  async askAboutSelection(): Promise<void> {
    const editor = window.activeTextEditor;
    if (editor === undefined) {
      await this.ask();
      return;
    }
    const question = await this.#box(t('What about the selected text?'), '');
    if (question === undefined) return;
    const { document, selection } = editor;
    const range = selection.isEmpty ? document.lineAt(selection.active.line).range : selection;
    const quoted = quoteSelection({
      path: workspace.asRelativePath(document.uri, false),
      firstLine: range.start.line + 1,
      lastLine: range.end.line + 1,
      languageId: document.languageId,
      text: document.getText(range),
    });
    await this.#prompt(`${question}\n\n${quoted}`);
  }

  /** Write a prompt in a document, with a button to send it. */
  async write(draft: string): Promise<void> {
    const session = this.#workbench.session?.id ?? '';
    const document = await workspace.openTextDocument({ language: 'markdown', content: draft });
    this.#documents.set(document.uri.toString(), session);
    this.#tellContext();
    await window.showTextDocument(document);
  }

  async sendDocument(): Promise<void> {
    const document = window.activeTextEditor?.document;
    if (document === undefined || !this.#documents.has(document.uri.toString())) return;
    const text = document.getText();
    if (text.trim() === '') return;
    await this.#prompt(text, this.#documents.get(document.uri.toString()));
    await close(document);
  }

  #forget(uri: string): void {
    if (this.#documents.delete(uri)) this.#tellContext();
  }

  #tellContext(): void {
    const paths = [...this.#documents.keys()].map((uri) => uri.replace(/^untitled:/, ''));
    void commands.executeCommand('setContext', CONTEXT_KEY, paths);
  }

  async runShellCommand(): Promise<void> {
    const command = await window.showInputBox({
      placeHolder: t('Shell command, whose output the model sees'),
    });
    if (!command?.trim()) return;
    await this.#transcripts.show({ beside: true, keepFocus: true }).catch(() => undefined);
    await this.#workbench.ask(COMMANDS.bash, { command });
  }

  get #running(): boolean {
    return this.#workbench.session?.running === true;
  }

  async #say(placeHolder: string, send: (text: string) => Promise<unknown>): Promise<void> {
    const text = await this.#box(placeHolder, '');
    if (text !== undefined) await send(text);
  }

  async #steer(text: string): Promise<void> {
    await this.#workbench.ask(COMMANDS.steer, { text });
  }

  async #followUp(text: string): Promise<void> {
    await this.#workbench.ask(COMMANDS.followUp, { text });
  }

  async #prompt(text: string, session?: string): Promise<void> {
    const options = session ? { session } : {};
    await this.#workbench.ask(COMMANDS.prompt, { text }, options);
    await this.#transcripts.show({ beside: true, keepFocus: true }, session || undefined);
  }

  /** One line, or undefined where it was closed or empty. A button moves the text into a document. */
  #box(placeholder: string, value: string): Promise<string | undefined> {
    const longer: QuickInputButton = {
      iconPath: new ThemeIcon('edit'),
      tooltip: t('Write it in a document'),
    };
    const box = window.createInputBox();
    box.placeholder = placeholder;
    box.value = value;
    box.ignoreFocusOut = true;
    box.buttons = [longer];
    return new Promise((resolve) => {
      box.onDidTriggerButton(() => {
        const draft = box.value;
        box.hide();
        void this.#workbench.attempt(() => this.write(draft));
      });
      box.onDidAccept(() => {
        if (box.value.trim() === '') return;
        resolve(box.value);
        box.hide();
      });
      box.onDidHide(() => {
        resolve(undefined);
        box.dispose();
      });
      box.show();
    });
  }

  dispose(): void {
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

/** A prompt that was sent needs no question whether to keep it. */
async function close(document: TextDocument): Promise<void> {
  await window.showTextDocument(document);
  await commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
}
