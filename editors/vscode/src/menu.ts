/** What a click on the meter offers. Nothing happens before something is chosen. */

import { commands, QuickPickItemKind, window, type QuickPickItem } from 'vscode';

import type { Register } from './commands';
import { t } from './l10n';
import { figures } from './meter';
import { titleOf } from './sessionModel';
import type { Workbench } from './workbench';

interface Action extends QuickPickItem {
  command?: string;
}

export function registerMenu(workbench: Workbench, register: Register): void {
  register('piLs.showMenu', async () => {
    const session = workbench.session;
    const placeHolder =
      session === undefined ? t('pi: no session') : `${titleOf(session)} · ${figures(session.usage)}`;
    const chosen = await window.showQuickPick(actions(workbench), { placeHolder });
    if (chosen?.command !== undefined) await commands.executeCommand(chosen.command);
  });
}

function actions(workbench: Workbench): Action[] {
  const { server, session } = workbench;
  const action = (icon: string, label: string, command: string): Action => ({
    label: `$(${icon}) ${label}`,
    command,
  });
  const line: Action = { label: '', kind: QuickPickItemKind.Separator };
  const sessions = [
    action('add', t('New session'), 'piLs.newSession'),
    action('folder-opened', t('Open session…'), 'piLs.openSession'),
  ];
  const health = [
    action('output', t('Show log'), 'piLs.showLog'),
    action('debug-restart', t('Restart server'), 'piLs.restartServer'),
  ];
  if (server.health !== 'running') return health;
  if (session === undefined) return [...sessions, line, ...health];
  const automatic = session.state.autoCompactionEnabled
    ? t('Turn automatic compaction off')
    : t('Turn automatic compaction on');
  return [
    ...(session.asking.size > 0
      ? [action('bell-dot', t('Answer the agent’s question…'), 'piLs.answerQuestion'), line]
      : []),
    ...(session.compacting === undefined
      ? [
          action('fold', t('Compact'), 'piLs.compact'),
          action('edit', t('Compact with instructions…'), 'piLs.compactWithInstructions'),
          action('eye', t('Preview compaction'), 'piLs.previewCompaction'),
        ]
      : [action('circle-slash', t('Cancel compaction'), 'piLs.cancelCompaction')]),
    action('discard', t('Undo the last compaction'), 'piLs.undoCompaction'),
    action('sync', automatic, 'piLs.toggleAutoCompaction'),
    line,
    ...(session.running
      ? [
          action('debug-stop', t('Stop'), 'piLs.abort'),
          action('arrow-right', t('Steer…'), 'piLs.steer'),
          action('arrow-down', t('Follow up…'), 'piLs.followUp'),
        ]
      : [action('comment', t('Prompt…'), 'piLs.prompt')]),
    action('book', t('Transcript'), 'piLs.showTranscript'),
    action('eye', t('What the model sees'), 'piLs.showContext'),
    action('git-branch', t('Switch branch…'), 'piLs.switchBranch'),
    line,
    ...sessions,
    action('chip', t('Select model…'), 'piLs.selectModel'),
    action('lightbulb', t('Thinking level…'), 'piLs.selectThinkingLevel'),
    line,
    ...health,
  ];
}
