/** Two folders in one window, and two windows on one folder: nobody takes anything away from anybody. */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { put, start } from './harness.mjs';
import { addSession, agentFolder } from './pi.mjs';

let code, w, page;
const ID = '019a2c5e-7b10-7c44-9d1e-000000000002';

before(
  async () => {
    code = await start({
      prepare({ root, folder }) {
        const other = join(root, 'tariffs');
        mkdirSync(other);
        put(join(folder, 'import.py'), 'print(1)\n');
        put(join(other, 'prices.py'), 'print(2)\n');
        const agent = agentFolder(root, folder);
        addSession(agent, other, { id: ID, name: 'Prices of the night', keep: 10 });
        const workspace = join(root, 'both.code-workspace');
        put(workspace, { folders: [{ path: folder }, { path: other }] });
        return { env: { PI_CODING_AGENT_DIR: agent }, open: { workspace } };
      },
    });
    w = code.window;
    page = w.page;
    await w.open();
  },
  { timeout: 120_000 },
);
after(() => code?.stop());
afterEach(async (context) => {
  await w.shot(`windows-${context.name.replace(/\W+/g, '-')}`);
  if (!context.passed) code.keepLogs('windows');
});

const openFile = async (window, name) => {
  await window.page.keyboard.press('Control+P');
  await window.input.fill(name);
  await window.option(name).click();
};

test('with two folders the meter names the one it shows', async () => {
  await w.meter('pi meterlog 73.5% 30k/41k (auto)').waitFor({ timeout: 60_000 });
});

test('it follows the focused editor into the other folder and back', async () => {
  await openFile(w, 'prices.py');
  await w.meter(/pi tariffs ~?\d/).waitFor();
  assert.match(await w.meter().getAttribute('aria-label'), /“Prices of the night”/);
  await w.showPiViews();
  await w.row(/^Prices of the night/).waitFor();
  await openFile(w, 'import.py');
  await w.meter('pi meterlog 73.5%').waitFor();
  await w.row(/^26 October is 470 Wh short/).waitFor();
});

test('a command works on the folder that is meant', async () => {
  await openFile(w, 'prices.py');
  await w.meter(/pi tariffs/).waitFor();
  await w.run('Pi: Rename Session…');
  await w.input.fill('Prices by day');
  await page.keyboard.press('Enter');
  await w.row(/^Prices by day/).waitFor();
  await openFile(w, 'import.py');
  await w.row(/^26 October is 470 Wh short/).waitFor();
});

test('a second window on the same folders has all commands, and so has the first one still', async () => {
  const second = await code.newWindow();
  await second.open();
  await second.meter('pi meterlog 73.5%').waitFor({ timeout: 60_000 });
  for (const window of [second, w]) {
    assert.equal(await window.timesOffered('Pi: Compact'), 1);
  }
  await second.run('Pi: Compact');
  await second.toast('Compacted: 30,120').waitFor();
  await second.meter('pi meterlog ?/41k').waitFor();
  await w.run('Pi: Restart Server');
  await w.meter('pi meterlog ?/41k').waitFor();
  await second.page.close();
});
