/** What VS Code thinks of the workspace is passed on: an untrusted one runs nothing of its own. */

import { workspace, type Disposable } from 'vscode';

import { COMMANDS } from './protocol';
import type { Workbench } from './workbench';

/** Tell the server when the workspace becomes trusted; one that cannot be told is started anew. */
export function passOnTrust(workbench: Workbench): Disposable {
  return workspace.onDidGrantWorkspaceTrust(async () => {
    const { server } = workbench;
    try {
      if (!server.commands.includes(COMMANDS.setTrust))
        throw new Error('the server takes trust only at its start');
      for (const { workspace } of workbench.folders) {
        await server.execute(COMMANDS.setTrust, { trusted: true, workspace });
      }
    } catch (error) {
      workbench.log.info(`restarting for the new trust: ${String(error)}`);
      await server.restart();
    }
  });
}
