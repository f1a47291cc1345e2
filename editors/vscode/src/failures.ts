/** Errors as a person gets them: the server's own sentence, and a button where something can be done. */

import { commands, window, type LogOutputChannel } from 'vscode';
import { ResponseError } from 'vscode-languageclient/node';

import { t } from './l10n';
import { ERROR_CODES } from './protocol';
import { NotOffered, ServerNotRunning, ServerWentAway, type Server } from './server/server';

interface WayOut {
  title: string;
  command: string;
}

/** The kind the server gave an error, empty for errors of anybody else. */
export function kindOf(error: unknown): string {
  const data: unknown = error instanceof ResponseError ? error.data : undefined;
  const kind = (data as { kind?: unknown } | null | undefined)?.kind;
  return typeof kind === 'string' ? kind : '';
}

/** Whether it is no failure, but what somebody wanted. */
export function isCancellation(error: unknown): boolean {
  return error instanceof ResponseError && error.code === ERROR_CODES.requestCancelled;
}

/** Show an error; one that was asked for by cancelling is not shown. */
export async function reportError(error: unknown, server: Server, log: LogOutputChannel): Promise<void> {
  if (isCancellation(error)) return;
  if (error instanceof ServerNotRunning) {
    await offer(t('The pi server is not running.'), [
      { title: t('Restart Server'), command: 'piLs.restartServer' },
      { title: t('Show Log'), command: 'piLs.showLog' },
    ]);
    return;
  }
  if (error instanceof ServerWentAway) {
    await offer(t('The server ended before this was done.'), [
      { title: t('Show Log'), command: 'piLs.showLog' },
    ]);
    return;
  }
  if (error instanceof NotOffered) {
    await offer(t('This pi server ({0}) cannot do that: {1}', server.version, error.message), []);
    return;
  }
  const sentence = error instanceof Error ? error.message : String(error);
  log.error(sentence);
  await offer(sentence, waysOut(kindOf(error)));
}

function waysOut(kind: string): WayOut[] {
  switch (kind) {
    case 'NoSession':
      return [
        { title: t('New Session'), command: 'piLs.newSession' },
        { title: t('Open Session…'), command: 'piLs.openSession' },
      ];
    case 'NoModel':
    case 'NoCredentials':
      return [{ title: t('Select Model…'), command: 'piLs.selectModel' }];
    case 'Busy':
      return [{ title: t('Stop It'), command: 'piLs.abort' }];
    case 'Untrusted':
      return [{ title: t('Manage Trust'), command: 'workbench.trust.manage' }];
    default:
      return [];
  }
}

async function offer(text: string, ways: readonly WayOut[]): Promise<void> {
  const chosen = await window.showErrorMessage(`pi: ${text}`, ...ways.map(({ title }) => title));
  const way = ways.find(({ title }) => title === chosen);
  if (way !== undefined) await commands.executeCommand(way.command);
}
