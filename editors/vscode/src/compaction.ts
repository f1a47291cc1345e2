/** Compacting by hand: preview, progress that can be cancelled, what came of it, and the way back. */

import { ProgressLocation, window, type ExtensionContext } from 'vscode';

import type { Register } from './commands';
import type { Documents } from './documents';
import { isCancellation } from './failures';
import { t } from './l10n';
import { tokens } from './meter';
import { idsToShow, outcome, previewMarkdown, type Shown } from './previewText';
import {
  COMMANDS,
  NOTIFICATIONS,
  textField,
  type CompactionPreview,
  type CompactionResult,
} from './protocol';
import { titleOf, type Session } from './sessionModel';
import { kindName } from './nodeTexts';
import type { Workbench } from './workbench';

export class Compaction {
  readonly #workbench: Workbench;
  readonly #documents: Documents;
  readonly #summaries = new Map<string, string>();
  readonly #previews = new Map<string, string>();

  constructor(workbench: Workbench, documents: Documents) {
    this.#workbench = workbench;
    this.#documents = documents;
    documents.provide('preview', (query) => this.#previews.get(query.get('session') ?? '') ?? '');
    documents.provide('summary', (query) => this.#summaries.get(query.get('entry') ?? '') ?? '');
  }

  register(register: Register, context: ExtensionContext): void {
    register('piLs.compact', () => this.compact());
    register('piLs.compactWithInstructions', () => this.compactWithInstructions());
    register('piLs.previewCompaction', () => this.preview());
    register('piLs.cancelCompaction', () => this.cancel());
    register('piLs.undoCompaction', () => this.undo());
    register('piLs.toggleAutoCompaction', () => this.toggleAutomatic());
    register('piLs.pruneToolOutputs', () => this.prune());
    register('piLs.restorePruned', () => this.restore());
    context.subscriptions.push(
      this.#workbench.server.onPush(({ method, params }) => {
        if (method !== NOTIFICATIONS.compactionEnd || params['reason'] === 'manual') return;
        const result = params['result'] as CompactionResult | undefined;
        this.#workbench.log.info(
          result ? outcome(result) : textField(params, 'errorMessage') || 'compaction aborted',
        );
      }),
    );
  }

  /** Compact the session that is meant. Cancel in the notification stops the request to the model at once. */
  async compact(customInstructions?: string): Promise<void> {
    const session = await this.#session();
    const result = await window.withProgress(
      {
        location: ProgressLocation.Notification,
        title: t('pi: compacting “{0}”', titleOf(session)),
        cancellable: true,
      },
      async (notification, token) => {
        let shown = 0;
        try {
          return await this.#workbench.ask(
            COMMANDS.compact,
            customInstructions === undefined ? {} : { customInstructions },
            {
              session: session.id,
              token,
              progress: ({ message, percentage }) => {
                const increment = Math.max(0, (percentage ?? shown) - shown);
                shown += increment;
                notification.report({ ...(message === undefined ? {} : { message }), increment });
              },
            },
          );
        } catch (error) {
          if (!isCancellation(error)) throw error;
          return undefined;
        }
      },
    );
    // The notification must be gone before the next one, so nothing above waits for a person.
    void this.#workbench.attempt(() => this.#tell(session, result));
  }

  async #tell(session: Session, result: CompactionResult | undefined): Promise<void> {
    if (result === undefined) {
      await window.showInformationMessage(t('pi: Compaction cancelled'));
      return;
    }
    this.#summaries.set(result.entryId, `# ${t('Summary')}\n\n${result.summary}\n`);
    const [show, undo] = [t('Show Summary'), t('Undo')];
    const chosen = await window.showInformationMessage(`pi: ${outcome(result)}`, show, undo);
    if (chosen === show) {
      const query = { session: session.id, entry: result.entryId };
      await this.#documents.show(this.#documents.address('summary', t('Summary'), query));
    } else if (chosen === undo) {
      await this.undo(session.id);
    }
  }

  async compactWithInstructions(): Promise<void> {
    await this.#session();
    const instructions = await window.showInputBox({
      placeHolder: t('What should the summary pay attention to?'),
      ignoreFocusOut: true,
    });
    if (instructions !== undefined) await this.compact(instructions.trim() || undefined);
  }

  /** Show what a compaction would do, and offer it. */
  async preview(): Promise<void> {
    const session = await this.#session();
    const preview = await this.#workbench.ask(COMMANDS.previewCompaction, {}, { session: session.id });
    const shown = await this.#texts(session.id, preview);
    const title = titleOf(session);
    this.#previews.set(session.id, previewMarkdown(title, preview, shown, session.usage.contextWindow));
    const address = this.#documents.address('preview', t('Compaction'), { session: session.id });
    await this.#documents.showRendered(address);
    if (preview.possible) void this.#workbench.attempt(() => this.#offer(preview));
  }

  async #offer(preview: CompactionPreview): Promise<void> {
    const [compact, focus] = [t('Compact'), t('With Instructions…')];
    const question = t(
      'pi: compact {0} tokens to about {1}?',
      tokens(preview.tokensBefore ?? 0),
      tokens(preview.estimatedTokensAfter ?? 0),
    );
    const chosen = await window.showInformationMessage(question, compact, focus);
    if (chosen === compact) await this.compact();
    else if (chosen === focus) await this.compactWithInstructions();
  }

  /** The few entries the preview shows are asked for one by one: a session may have tens of thousands. */
  async #texts(session: string, preview: CompactionPreview): Promise<Map<string, Shown>> {
    const found = new Map<string, Shown>();
    await Promise.all(
      idsToShow(preview).map(async (rootId) => {
        const page = await this.#workbench.ask(
          COMMANDS.getTree,
          { rootId, depth: 0, filter: 'all', limit: 1 },
          { session },
        );
        const node = page.nodes[0];
        if (node?.id === rootId)
          found.set(rootId, { who: kindName(node), text: node.text, tokens: node.tokens });
      }),
    );
    return found;
  }

  async cancel(): Promise<void> {
    const { aborted } = await this.#workbench.ask(COMMANDS.abortCompaction, {});
    if (!aborted) await window.showInformationMessage(t('pi: no compaction is running.'));
  }

  async undo(session?: string): Promise<void> {
    const options = session === undefined ? {} : { session };
    const { entriesLeft } = await this.#workbench.ask(COMMANDS.undoCompaction, {}, options);
    const more =
      entriesLeft > 0 ? ` ${t('{0} later entries are on their own branch now.', entriesLeft)}` : '';
    await window.showInformationMessage(t('pi: The compaction is undone.') + more);
  }

  async toggleAutomatic(): Promise<void> {
    const session = await this.#session();
    const enabled = !session.state.autoCompactionEnabled;
    const state = await this.#workbench.ask(COMMANDS.setAutoCompaction, { enabled }, { session: session.id });
    this.#workbench.model.told(session.workspace, state);
    if (state.notSaved) await window.showWarningMessage(`pi: ${state.notSaved}`);
  }

  async prune(): Promise<void> {
    const { prunedCount, tokensSaved } = await this.#workbench.ask(COMMANDS.pruneToolOutputs, {
      dryRun: true,
    });
    if (prunedCount === 0) {
      await window.showInformationMessage(t('pi: there is no old tool output worth blanking.'));
      return;
    }
    const blank = t('Blank It');
    const question = t(
      'pi: blank {0} old tool outputs and save {1} tokens? They can be restored.',
      prunedCount,
      tokens(tokensSaved),
    );
    if ((await window.showInformationMessage(question, blank)) !== blank) return;
    await this.#workbench.ask(COMMANDS.pruneToolOutputs, {});
  }

  async restore(): Promise<void> {
    const { restoredCount } = await this.#workbench.ask(COMMANDS.restorePruned, {});
    await window.showInformationMessage(t('pi: {0} tool outputs restored.', restoredCount));
  }

  async #session(): Promise<Session> {
    const { session, model, folder } = this.#workbench;
    if (session !== undefined) return session;
    return model.told(folder?.workspace ?? '', await this.#workbench.ask(COMMANDS.sessionState, {}), true);
  }
}
