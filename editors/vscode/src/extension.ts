/** The extension as a whole: what is wired to what. */

import { l10n, window, workspace, type ExtensionContext } from 'vscode';

import { Approvals } from './approvals';
import { registrar } from './commands';
import { Compaction } from './compaction';
import * as configuration from './configuration';
import { Documents } from './documents';
import { t, translateWith } from './l10n';
import { registerMenu } from './menu';
import { explainFailures } from './missing';
import { registerModels } from './models';
import { Navigation } from './navigation';
import { Prompting } from './prompting';
import { Server } from './server/server';
import { Sessions } from './sessions';
import { SessionTree } from './sessionTree';
import { Meter, showHealth } from './status';
import { Transcripts } from './transcript';
import { passOnTrust } from './trust';
import { Workbench } from './workbench';

/** What the tests of the extension host look at. */
export interface Exports {
  workbench: Workbench;
  meter: Meter;
  /** How long activation took, in milliseconds. */
  activationMs: number;
}

let stop: (() => Promise<void>) | undefined;

export function activate(context: ExtensionContext): Exports {
  const began = performance.now();
  translateWith((message, ...values) => l10n.t(message, ...values));
  const log = window.createOutputChannel('pi', { log: true });
  const trace = window.createOutputChannel(t('pi (messages)'), { log: true });
  const server = new Server(context.extensionUri, log, trace);
  stop = () => server.stop();
  const workbench = new Workbench(server, log);
  const documents = new Documents();
  const transcripts = new Transcripts(workbench, documents);
  const tree = new SessionTree(workbench, transcripts, context.workspaceState);
  const prompting = new Prompting(workbench, transcripts);
  const sessions = new Sessions(workbench);
  const meter = new Meter(workbench);
  context.subscriptions.push(
    log,
    trace,
    server,
    workbench,
    documents,
    transcripts,
    tree,
    prompting,
    sessions,
    meter,
  );
  const approvals = new Approvals(workbench, documents);
  context.subscriptions.push(approvals, showHealth(workbench));
  context.subscriptions.push(
    explainFailures(workbench),
    passOnTrust(workbench),
    followConfiguration(workbench, meter),
  );

  const register = registrar(workbench, context);
  new Compaction(workbench, documents).register(register, context);
  new Navigation(workbench, tree, prompting).register(register);
  transcripts.register(register);
  tree.register(register);
  prompting.register(register);
  sessions.register(register);
  approvals.register(register);
  registerModels(workbench, register);
  registerMenu(workbench, register);
  register('piLs.restartServer', () => server.restart());
  register('piLs.showLog', () => log.show());
  register('piLs.showMessages', () => trace.show());

  if (workbench.folders.length > 0) void server.restart();
  const activationMs = performance.now() - began;
  log.debug(`activated in ${activationMs.toFixed(0)} ms`);
  return { workbench, meter, activationMs };
}

export async function deactivate(): Promise<void> {
  await stop?.();
}

function followConfiguration({ server }: Workbench, meter: Meter): { dispose(): void } {
  return workspace.onDidChangeConfiguration((change) => {
    if (!change.affectsConfiguration(configuration.SECTION)) return;
    meter.update();
    if (configuration.NEEDS_RESTART.some((key) => change.affectsConfiguration(key))) void server.restart();
    else void server.sendConfiguration();
  });
}
