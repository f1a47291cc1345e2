/** The extension in a real extension host: activation, commands, two clients, restarts. */

import assert from 'node:assert/strict';

import { commands, extensions, window, workspace } from 'vscode';

import type { Exports } from '../../src/extension';
import { COMMANDS } from '../../src/protocol';
import { makeClient } from '../../src/server/client';

const SERVERS = new Set<string>(Object.values(COMMANDS));

async function extension(): Promise<Exports> {
  const found = extensions.getExtension<Exports>('pi-ls.pi-ls');
  assert.ok(found);
  return found.activate();
}

async function running({ workbench: { server } }: Exports): Promise<void> {
  while (server.health !== 'running') await new Promise((resolve) => setTimeout(resolve, 20));
}

const serverCommands = async (): Promise<string[]> =>
  (await commands.getCommands()).filter((id) => SERVERS.has(id));

suite('extension', () => {
  test('activation takes less than 100 ms, the server comes afterwards', async () => {
    const { activationMs } = await extension();
    assert.ok(activationMs < 100, `${activationMs} ms`);
  });

  test('every command of the manifest is there', async () => {
    const known = new Set(await commands.getCommands());
    const manifest = extensions.getExtension('pi-ls.pi-ls')?.packageJSON as {
      contributes: { commands: { command: string }[] };
    };
    for (const { command } of manifest.contributes.commands) assert.ok(known.has(command), command);
  });

  test('no command of the server is a command of VS Code', async () => {
    const exports = await extension();
    await running(exports);
    assert.ok(exports.workbench.server.commands.length > 20);
    assert.deepEqual(await serverCommands(), []);
  });

  test('two clients run in one window', async () => {
    await running(await extension());
    const [command = '', ...args] = workspace.getConfiguration('piLs').get<string[]>('server.command', []);
    const log = window.createOutputChannel('second', { log: true });
    const second = makeClient({ command, args, origin: 'setting' }, process.cwd(), { outputChannel: log });
    await second.start();
    assert.deepEqual(await serverCommands(), []);
    await second.dispose();
  });

  test('many restarts at once are one or two, and everything works afterwards', async () => {
    const exports = await extension();
    const { server } = exports.workbench;
    let starts = 0;
    const listening = server.onDidChangeHealth((health) => {
      if (health === 'starting') starts++;
    });
    await Promise.all([server.restart(), server.restart(), server.restart(), server.restart()]);
    await running(exports);
    listening.dispose();
    assert.ok(starts >= 1 && starts <= 2, String(starts));
    const state = await exports.workbench.ask(COMMANDS.sessionState, {});
    assert.equal(state.name, '26 October is 470 Wh short');
  });

  test('an error of the server comes with the server’s own sentence', async () => {
    const { workbench } = await extension();
    await assert.rejects(workbench.ask(COMMANDS.navigateTree, { targetId: 'ffffffff' }), /ffffffff/);
  });
});
