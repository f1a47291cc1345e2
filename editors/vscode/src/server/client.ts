/** The language client, less what would get in the way of other windows, folders and extensions. */

import { workspace, type WorkspaceFolder } from 'vscode';
import {
  CloseAction,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  type DynamicFeature,
  type LanguageClientOptions,
  type Middleware,
  type ServerOptions,
  type StaticFeature,
} from 'vscode-languageclient/node';

import * as configuration from '../configuration';
import { t } from '../l10n';
import { CONFIGURATION_SECTION } from '../protocol';
import type { Program } from './discovery';

/** How often a server that ends by itself is started again, and within which time. */
const RESTARTS = { most: 4, withinMs: 180_000 };

/**
 * A client that registers none of the server's commands with VS Code: their ids are the same in every client,
 * and VS Code refuses an id it has already.
 */
export class Client extends LanguageClient {
  override registerFeature(feature: StaticFeature | DynamicFeature<unknown>): void {
    const registers = 'registrationType' in feature && feature.registrationType.method;
    if (registers !== ExecuteCommandRequest.method) super.registerFeature(feature);
  }
}

/** A client for that program; `folder` is where the program runs. */
export function makeClient(
  program: Program,
  cwd: string,
  options: Pick<LanguageClientOptions, 'outputChannel' | 'traceOutputChannel'>,
): Client {
  const server: ServerOptions = { command: program.command, args: program.args, options: { cwd } };
  const ended: number[] = [];
  return new Client(configuration.SECTION, 'pi', server, {
    ...options,
    documentSelector: [{ scheme: 'file' }, { scheme: 'untitled' }],
    initializationOptions: initializationOptions(),
    initializationFailedHandler: () => false,
    middleware,
    errorHandler: {
      error: (_error, _message, count) => ({
        action: (count ?? 0) < 3 ? ErrorAction.Continue : ErrorAction.Shutdown,
        handled: true,
      }),
      closed: () => {
        const now = Date.now();
        ended.push(now);
        const lately = ended.filter((at) => now - at < RESTARTS.withinMs);
        if (lately.length <= RESTARTS.most) return { action: CloseAction.Restart, handled: true };
        return {
          action: CloseAction.DoNotRestart,
          message: t('The pi server ended {0} times within {1} minutes.', lately.length, 3),
        };
      },
    },
  });
}

function initializationOptions(): Record<string, unknown> {
  const given = {
    agentDir: configuration.agentDir(),
    sessionDir: configuration.sessionDir(),
    model: configuration.defaultModel(),
    autoOpen: configuration.autoOpen(),
    tokenEstimator: configuration.tokenEstimator(),
  };
  return {
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== '')),
    trusted: workspace.isTrusted,
    approvals: 'notification',
  };
}

/** The server asks for its own section; ours has another name. */
const middleware: Middleware = {
  workspace: {
    configuration: (params, token, next) => {
      if (!params.items.some((item) => item.section === CONFIGURATION_SECTION)) return next(params, token);
      return params.items.map((item) =>
        item.section === CONFIGURATION_SECTION ? configuration.serverSettings() : null,
      );
    },
  },
};

/** A folder's address as the language client writes it, and therefore as the server names it. */
export const uriOf = (folder: WorkspaceFolder): string => folder.uri.toString();
