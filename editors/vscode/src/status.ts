/** The meter in the status bar, and the server's health in the language status. */

import {
  languages,
  LanguageStatusSeverity,
  MarkdownString,
  StatusBarAlignment,
  ThemeColor,
  window,
  type Disposable,
} from 'vscode';

import * as configuration from './configuration';
import { t } from './l10n';
import { levelOf, meterText, spoken, tooltip, type Level } from './meter';
import { COMMANDS, type ContextDetail } from './protocol';
import type { Health } from './server/server';
import type { Workbench } from './workbench';

const DETAIL_DELAY_MS = 400;

const BACKGROUNDS: Record<Level, ThemeColor | undefined> = {
  normal: undefined,
  warning: new ThemeColor('statusBarItem.warningBackground'),
  error: new ThemeColor('statusBarItem.errorBackground'),
};

/** Commands the tooltip may run. */
const LINKS = [
  'piLs.answerQuestion',
  'piLs.newSession',
  'piLs.openSession',
  'piLs.compact',
  'piLs.cancelCompaction',
  'piLs.previewCompaction',
  'piLs.switchBranch',
  'piLs.showTranscript',
];

/** One item on the right. It shows the current session of the folder that is meant. */
export class Meter implements Disposable {
  readonly item = window.createStatusBarItem('piLs.meter', StatusBarAlignment.Right, 50);
  readonly #workbench: Workbench;
  readonly #disposables: Disposable[];
  #detail: { session: string; value: ContextDetail } | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(workbench: Workbench) {
    this.#workbench = workbench;
    this.item.name = t('pi context meter');
    this.item.command = 'piLs.showMenu';
    this.#disposables = [
      this.item,
      workbench.model.onDidChange(() => this.update()),
      workbench.onDidChangeFocus(() => this.update()),
      workbench.server.onDidChangeHealth(() => this.update()),
    ];
    this.update();
  }

  update(): void {
    const { session, server, folder, folders } = this.#workbench;
    if (session === undefined && folder === undefined) {
      this.item.hide();
      return;
    }
    const running = server.health === 'running';
    this.item.text = running
      ? meterText(session, folders.length > 1 ? folder?.name : undefined)
      : off(server.health);
    const level =
      running && session !== undefined ? levelOf(session.usage, configuration.thresholds()) : 'normal';
    this.item.backgroundColor = BACKGROUNDS[level];
    this.item.accessibilityInformation = { label: running ? spoken(session) : healthText(server.health) };
    this.#describe();
    this.item.show();
    if (session !== undefined && running) this.#askForDetail(session.id);
  }

  #describe(): void {
    const { session, server, folder } = this.#workbench;
    if (server.health !== 'running') {
      this.item.tooltip = healthText(server.health);
      return;
    }
    const detail = this.#detail?.session === session?.id ? this.#detail?.value : undefined;
    const text = new MarkdownString(tooltip(session, detail ?? {}, folder?.name ?? ''), true);
    text.isTrusted = { enabledCommands: LINKS };
    this.item.tooltip = text;
  }

  /** The table of categories costs the server a walk over the context, so it is asked for when things are calm. */
  #askForDetail(session: string): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#workbench.ask(COMMANDS.contextUsage, { detail: true }, { session }).then(
        (value) => {
          this.#detail = { session, value };
          this.#describe();
        },
        (error: unknown) => this.#workbench.log.debug(`no detail for the tooltip: ${String(error)}`),
      );
    }, DETAIL_DELAY_MS);
  }

  dispose(): void {
    clearTimeout(this.#timer);
    for (const disposable of this.#disposables) disposable.dispose();
  }
}

const off = (health: Health): string =>
  health === 'starting' ? '$(loading~spin) pi' : health === 'stopped' ? 'pi' : '$(error) pi';

function healthText(health: Health): string {
  switch (health) {
    case 'running':
      return t('The pi server is running.');
    case 'starting':
      return t('The pi server is starting.');
    case 'stopped':
      return t('The pi server is stopped.');
    case 'failed':
      return t('The pi server does not start.');
    case 'missing':
      return t('No pi server was found.');
  }
}

/** The server's health, where VS Code shows that of other language servers. */
export function showHealth(workbench: Workbench): Disposable {
  const { server } = workbench;
  const item = languages.createLanguageStatusItem('piLs.server', { scheme: 'file' });
  item.name = t('pi server');
  const update = (): void => {
    const broken = server.health === 'failed' || server.health === 'missing';
    item.severity = broken ? LanguageStatusSeverity.Error : LanguageStatusSeverity.Information;
    item.busy = server.health === 'starting';
    item.text = server.health === 'running' ? `pi-ls ${server.version}` : 'pi-ls';
    item.detail = broken && server.failure ? server.failure : healthText(server.health);
    item.command = broken
      ? { title: t('Show Log'), command: 'piLs.showLog' }
      : { title: t('Restart'), command: 'piLs.restartServer' };
  };
  update();
  const listening = server.onDidChangeHealth(update);
  return {
    dispose: () => {
      listening.dispose();
      item.dispose();
    },
  };
}
