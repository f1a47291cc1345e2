/** Where something is missing: the server, trust, a session, a command of the server. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';

import { put, SERVER, start } from './harness.mjs';
import { agentFolder, startProvider } from './pi.mjs';

let code;
afterEach(async (context) => {
  await code.window.shot(`limits-${context.name.replace(/\W+/g, '-')}`);
  if (!context.passed) code.keepLogs('limits');
  await code.stop();
});

const begin = async (options) => {
  code = await start(options);
  await code.window.open();
  return code.window;
};

test(
  'without a server one is told what to do, and setting its path helps at once',
  { timeout: 120_000 },
  async () => {
    const w = await begin({
      prepare: ({ root, folder }) => ({
        env: { PI_CODING_AGENT_DIR: agentFolder(root, folder), PATH: '/usr/bin:/bin' },
        machine: { 'piLs.server.command': [] },
      }),
    });
    await w.toast('no server was found').waitFor({ timeout: 60_000 });
    for (const name of ['Set Its Path', 'Install uv', 'Try Again'])
      await w.button('no server was found', name).waitFor();
    await w.shot('no-server');
    await w.button('no server was found', 'Set Its Path').click();
    await w.page.locator('.setting-item').filter({ hasText: 'The program that serves' }).first().waitFor();
    code.setMachine({ 'piLs.server.command': SERVER });
    await w.meter('pi 73.5%').waitFor({ timeout: 30_000 });
  },
);

test('a server that does not start is told with its reason', { timeout: 120_000 }, async () => {
  const w = await begin({
    prepare: ({ root, folder }) => ({
      env: { PI_CODING_AGENT_DIR: agentFolder(root, folder) },
      machine: { 'piLs.server.command': ['/nowhere/pi-ls'] },
    }),
  });
  await w.toast('/nowhere/pi-ls does not start').waitFor({ timeout: 60_000 });
  await w.button('/nowhere/pi-ls does not start', 'Show Log').waitFor();
});

test(
  'an untrusted workspace cannot name the server, and trusting it is passed on',
  { timeout: 180_000 },
  async () => {
    let agent;
    const w = await begin({
      trusted: false,
      prepare({ root, folder }) {
        agent = agentFolder(root, folder);
        const evil = join(root, 'evil');
        put(join(folder, '.vscode/settings.json'), {
          'piLs.server.command': ['/bin/sh', '-c', `touch ${evil}`],
          'piLs.settings': { compaction: { models: ['evil/model'] } },
        });
        return { env: { PI_CODING_AGENT_DIR: agent } };
      },
    });
    await w.meter('pi 73.5%').waitFor({ timeout: 60_000 });
    assert.throws(() => readFileSync(join(code.root, 'evil')));
    await w.run('Pi: Compact');
    await w.toast('Compacted: 30,120').waitFor();
    await w.run('Pi: Undo Compaction');
    await w.meter('pi 73.5%').waitFor();
    const restricted = w.page.locator('.statusbar-item').filter({ hasText: 'Restricted Mode' });
    await restricted.click();
    await w.page.getByRole('button', { name: 'Trust', exact: true }).click();
    await restricted.waitFor({ state: 'detached' });
    await w.meter('pi 73.5%').waitFor({ timeout: 30_000 });
    assert.throws(() => readFileSync(join(code.root, 'evil')));
  },
);

test('a folder without sessions offers to begin one', { timeout: 120_000 }, async () => {
  const w = await begin({
    prepare: ({ root }) => ({ env: { PI_CODING_AGENT_DIR: join(root, 'empty') } }),
  });
  await w.meter('pi –').waitFor({ timeout: 60_000 });
  await w.showPiViews();
  await w.page.getByRole('button', { name: 'New Session', exact: true }).first().waitFor();
  await w.shot('no-session');
  await w.run('Pi: Open Session…');
  await w.toast('there are no sessions here yet').waitFor();
});

test(
  'without a folder a prompt still begins a session, with the server it starts',
  { timeout: 180_000 },
  async () => {
    const provider = await startProvider();
    try {
      const w = await begin({
        prepare: ({ root, folder }) => ({
          env: { PI_CODING_AGENT_DIR: agentFolder(root, folder, { provider: provider.openai }) },
          machine: { 'piLs.model': 'workstation/qwen3-coder-30b' },
          open: {},
        }),
      });
      await w.showPiViews();
      await w.page.getByText('Sessions belong to a folder.').waitFor({ timeout: 60_000 });
      await provider.queue({ text: 'Good morning.' });
      await w.run('Pi: Prompt…');
      await w.input.fill('Hello?');
      await w.page.keyboard.press('Enter');
      await w.line('Good morning.').waitFor({ timeout: 120_000 });
      await w.meter('/41k').waitFor();
    } finally {
      await provider.stop();
    }
  },
);
