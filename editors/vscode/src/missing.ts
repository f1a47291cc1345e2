/** What a person is told when no server can be started, and what they can do about it. */

import { commands, env, Uri, window, type Disposable } from 'vscode';

import { SECTION } from './configuration';
import { t } from './l10n';
import type { Workbench } from './workbench';

/** Where uv, which can run the bundled server, is explained. */
const UV = 'https://docs.astral.sh/uv/getting-started/installation/';

export function explainFailures(workbench: Workbench): Disposable {
  const { server } = workbench;
  return server.onDidChangeHealth((health) => {
    if (health === 'missing') void workbench.attempt(() => explainMissing(workbench));
    if (health === 'failed') void workbench.attempt(() => explainFailed(workbench));
  });
}

async function explainMissing({ server }: Workbench): Promise<void> {
  const [settings, install, again] = [t('Set Its Path'), t('Install uv'), t('Try Again')];
  const chosen = await window.showErrorMessage(
    t(
      'pi: no server was found. Install pi-ls into the selected Python or on PATH, set its path, or install uv, which runs the one this extension brings.',
    ),
    settings,
    install,
    again,
  );
  if (chosen === settings) await openSetting();
  else if (chosen === install) await env.openExternal(Uri.parse(UV));
  else if (chosen === again) await server.restart();
}

async function explainFailed({ server }: Workbench): Promise<void> {
  const [log, settings, again] = [t('Show Log'), t('Set Its Path'), t('Try Again')];
  const program = server.program?.command ?? 'pi-ls';
  const chosen = await window.showErrorMessage(
    t('pi: the server {0} does not start: {1}', program, server.failure),
    log,
    settings,
    again,
  );
  if (chosen === log) await commands.executeCommand('piLs.showLog');
  else if (chosen === settings) await openSetting();
  else if (chosen === again) await server.restart();
}

/** Settings of the machine have a page of their own where the machine is not the one with the screen. */
async function openSetting(): Promise<void> {
  const remote = 'workbench.action.openRemoteSettings';
  const query = `@id:${SECTION}.server.command`;
  if ((await commands.getCommands(true)).includes(remote)) await commands.executeCommand(remote, { query });
  else await commands.executeCommand('workbench.action.openSettings', query);
}
