/** One session in one window, from the meter to a killed server, as a person meets it. The tests build on another. */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { start } from './harness.mjs';
import {
  agentFolder,
  addLongSession,
  addSession,
  answerFromElsewhere,
  eventually,
  startProvider,
  writeSettings,
} from './pi.mjs';

let code, w, page, provider, agent, file;
const FULL = 'pi 73.5% 30k/41k (auto)';

const entries = () =>
  readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
const last = (type) => entries().findLast((entry) => entry.type === type);

before(
  async () => {
    provider = await startProvider();
    code = await start({
      prepare({ root, folder }) {
        agent = agentFolder(root, folder, { provider: provider.openai });
        file = addSession(agent, folder);
        addLongSession(agent, folder);
        return { env: { PI_CODING_AGENT_DIR: agent } };
      },
    });
    w = code.window;
    page = w.page;
    await w.open();
  },
  { timeout: 120_000 },
);
after(async () => {
  await code?.stop();
  await provider?.stop();
});
afterEach(async (context) => {
  await w.shot(`session-${context.name.replace(/\W+/g, '-')}`);
  if (!context.passed) code.keepLogs('session');
});

test('the meter shows how full the context of the newest session is', async () => {
  await w.meter(FULL).waitFor({ timeout: 60_000 });
  const spoken = await w.meter().getAttribute('aria-label');
  assert.match(spoken, /“26 October is 470 Wh short” 73\.5 percent full, 30,120 of 40,960 tokens/);
  assert.match(await w.meter().getAttribute('class'), /warning-kind/);
});

test('its tooltip tells the categories and the distance to automatic compaction', async () => {
  const tooltip = page.locator('.monaco-hover:visible');
  await eventually('the categories', async () => {
    await page.mouse.move(600, 300);
    await w.meter().hover();
    await tooltip.waitFor();
    return (await tooltip.innerText()).includes('Tool output');
  });
  assert.match(await tooltip.innerText(), /2,648 tokens until automatic compaction at 32,768/);
  await w.shot('tooltip');
  await page.mouse.move(600, 300);
});

test('a click on it offers what can be done, and does nothing by itself', async () => {
  await w.meter().click();
  await w.option('Preview compaction').waitFor();
  await w.shot('menu');
  await page.keyboard.press('Escape');
  assert.equal(last('compaction'), undefined);
});

test('the tree is shown with its labels and the place where one is', async () => {
  await w.showPiViews();
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor();
  await w.row(/^Assistant, Done, and ready.*label ready to merge/).waitFor();
  assert.equal(await page.getByRole('treeitem', { name: /another branch of 16 entries/ }).count(), 0); // further up
});

test('a click on an entry shows it whole', async () => {
  await w.row(/^You, One more idea before I merge/).click();
  await w.line('One more idea before I merge').waitFor();
});

test('the tree finds entries by their words', async () => {
  await w.run('Pi: Find in Session Tree…');
  await w.input.fill('fold column');
  await page.keyboard.press('Enter');
  await page.getByText('“fold column”: ', { exact: false }).first().waitFor();
  await w.row(/^You, I tried the `fold` column/).waitFor();
  await w.run('Pi: Show Whole Session Tree');
  await w.row(/^Assistant, I would leave this one/).waitFor();
});

test('choosing the entry one is at does nothing', async () => {
  const before = readFileSync(file, 'utf8');
  await w.run('Pi: Switch Branch…');
  await w.input.fill('I would leave this one');
  await page.keyboard.press('Enter');
  await w.toast('you are there already').waitFor();
  await w.dismissAll();
  assert.equal(readFileSync(file, 'utf8'), before);
});

test('going elsewhere offers three choices, and closing them stays', async () => {
  const before = readFileSync(file, 'utf8');
  await w.run('Pi: Switch Branch…');
  await w.shot('switch-branch');
  await w.input.fill('It works for the total now');
  await page.keyboard.press('Enter');
  await w.option('Summarize').waitFor();
  for (const choice of ['No summary', 'Summarize', 'Summarize with focus…']) await w.option(choice).waitFor();
  assert.equal(await page.locator('.quick-input-list').getByRole('option').count(), 3);
  await w.shot('summary-choice');
  await page.keyboard.press('Escape');
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor();
  assert.equal(readFileSync(file, 'utf8'), before);
});

test('the other branch is gone to with a summary of the one that is left', async () => {
  await w.run('Pi: Switch Branch…');
  await w.input.fill('It works for the total now');
  await page.keyboard.press('Enter');
  await w.option('Summarize').click();
  await w.toast('moved. Files are as they were').waitFor();
  const summary = await eventually('the summary in the file', () => last('branch_summary'));
  assert.match(summary.summary, /## Goal/);
  await w.row(/^Branch summary.*current entry/).waitFor();
});

test('and the way back is offered', async () => {
  await w.button('moved. Files are as they were', 'Go Back').click();
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor();
  await w.meter(FULL).waitFor();
});

test('a message of the user is put back into the prompt box', async () => {
  await w.row(/^You, One more idea before I merge/).hover();
  await w
    .row(/^You, One more idea before I merge/)
    .getByRole('button', { name: 'Go Here' })
    .click();
  await w.option('No summary').click();
  await eventually('the text in the box', async () =>
    (await w.input.inputValue()).startsWith('One more idea before I merge'),
  );
  await page.keyboard.press('Escape');
  await w.row(/^Assistant, Done, and ready.*current entry/).waitFor();
  await w.run('Pi: Switch Branch…');
  await w.input.fill('I would leave this one');
  await page.keyboard.press('Enter');
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor(); // nothing was left, so nothing asked
  await w.dismissAll();
});

test('a message that a filter shows as the last one is still asked about: what it hides would be left', async () => {
  await w.run('Pi: Filter Session Tree…');
  await w.option('Your messages only').click();
  const row = () => w.row(/^You, One more idea before I merge.*current entry/);
  await row().hover();
  await row().getByRole('button', { name: 'Go Here' }).click();
  await w.option('No summary').waitFor();
  await page.keyboard.press('Escape');
  await w.run('Pi: Filter Session Tree…');
  await w.option('The conversation').click();
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor();
});

test('an entry is labeled, and the label taken away again', async () => {
  const row = () => w.row(/^You, One more idea before I merge/);
  await w.menu(row(), 'Set Label…');
  await w.input.fill('the last idea');
  await page.keyboard.press('Enter');
  await w.row(/^You, One more idea.*label the last idea/).waitFor();
  await w.menu(row(), 'Set Label…');
  await w.input.fill('');
  await page.keyboard.press('Enter');
  await eventually('the label is gone', async () => !(await row().innerText()).includes('the last idea'));
});

test('a preview says what a compaction would do', async () => {
  await w.run('Pi: Preview Compaction');
  const preview = page.frameLocator('iframe.webview.ready').frameLocator('iframe#active-frame');
  await preview.getByText('What compaction would do').waitFor();
  await preview.getByText('30,120', { exact: true }).waitFor();
  await preview.getByText('The first entry that is kept:').waitFor();
  await w.shot('preview');
  await w.toast('compact 30,120 tokens to about').waitFor();
  await w.dismissAll();
  assert.equal(last('compaction'), undefined);
});

test('a compaction is cancelled in its notification while the provider hangs', async () => {
  writeSettings(agent, ['workstation/qwen3-coder-30b']);
  await provider.queue({ hang: true });
  await w.run('Pi: Compact');
  await w.toast('pi: compacting').waitFor();
  await w.meter('compacting').waitFor();
  // the first request of a server loads a large library
  await eventually(
    'the request has come',
    async () => (await provider.state()).requests.length === 1,
    120_000,
  );
  await w.shot('progress');
  await w.button('pi: compacting', 'Cancel').click();
  await w.toast('Compaction cancelled').waitFor();
  await w.toast('pi: compacting').waitFor({ state: 'detached' });
  await w.meter(FULL).waitFor();
  await eventually('the connection is closed', async () => (await provider.state()).closed === 1);
  assert.equal(last('compaction'), undefined);
  await w.dismissAll();
});

test('a compaction that fails says why, and the meter is as before', async () => {
  await provider.queue({ status: 500, body: { error: { message: 'the model has a headache' } } });
  await w.run('Pi: Compact');
  await w.toast('the model has a headache').waitFor();
  await w.meter(FULL).waitFor();
  await w.shot('failed');
  await w.dismissAll();
});

test('a compaction by the palette: before and after, and a meter that does not claim to know', async () => {
  writeSettings(agent);
  await w.run('Pi: Compact');
  await w.toast(/Compacted: 30,120 → [\d,]+ tokens\./).waitFor();
  await w.meter('pi ?/41k (auto)').waitFor();
  await w.shot('compacted');
  await w.button('Compacted:', 'Show Summary').click();
  await w.line('## Goal').waitFor();
  await w.row(/^Compaction.*current entry/).waitFor();
});

test('compacting once more says that it is done already', async () => {
  await w.run('Pi: Compact');
  await w.toast('Already compacted').waitFor();
  await w.dismissAll();
});

test('a compaction is undone', async () => {
  await w.run('Pi: Undo Compaction');
  await w.toast('The compaction is undone').waitFor();
  await w.meter(FULL).waitFor();
  await w.dismissAll();
});

test('the transcript shows the path', async () => {
  await w.run('Pi: Show Transcript');
  await w.line("that no query may say `'localtime'`").waitFor();
});

test('what the model sees is another document', async () => {
  await w.run('Pi: Show What the Model Sees');
  await w.line('# What the model sees').waitFor();
});

test('a session is named, begun, and found again', async () => {
  await w.run('Pi: Rename Session…');
  await w.input.fill('A short day');
  await page.keyboard.press('Enter');
  await w.row(/^A short day/).waitFor();
  await w.run('Pi: New Session');
  await w.meter('pi ~0% 0/41k (auto)').waitFor();
  await w.row(/^New session/).waitFor();
  await page.getByText('Nothing has been said in this session yet.').waitFor();
  await w.run('Pi: Open Session…');
  await w.option('A short day').click();
  await w.meter('pi 73.5%').waitFor();
});

test('of a very long session the end is shown, and it is called by its beginning', async () => {
  await w.run('Pi: Open Session…');
  await w.input.fill('Question 0');
  await page.keyboard.press('Enter');
  await w.meter('/41k').waitFor();
  await page.getByText('The newest', { exact: false }).first().waitFor();
  await w.row(/^Assistant, Answer 2499.*current entry/).waitFor();
  assert.match(await w.meter().getAttribute('aria-label'), /“Question 0 about the meter”/);
  await w.run('Pi: Find in Session Tree…');
  await w.input.fill('Answer 7');
  await page.keyboard.press('Enter');
  await w.row(/^Assistant, Answer 7 /).click();
  await w.line('Answer 7 is as good').waitFor();
  await w.run('Pi: Open Session…');
  await w.option('A short day').click();
  await w.meter('pi 73.5%').waitFor();
  await w.row(/^Assistant, I would leave this one.*current entry/).waitFor(); // nothing is looked for in this one
});

test('a session is exported', async () => {
  await w.run('Pi: Export Session…');
  await w.option('Markdown').click();
  await eventually('the name', async () => (await w.input.inputValue()).endsWith('/A-short-day.md'));
  await page.keyboard.press('Enter');
  await w.toast('exported to').waitFor();
  assert.match(readFileSync(join(code.folder, 'A-short-day.md'), 'utf8'), /^# A short day/);
  await w.dismissAll();
});

test('automatic compaction is turned off and on, and the meter says so', async () => {
  await w.run('Pi: Turn Automatic Compaction On or Off');
  await w.meter('pi 73.5% 30k/41k').waitFor();
  await eventually('no (auto)', async () => !(await w.meter().innerText()).includes('auto'));
  await w.run('Pi: Turn Automatic Compaction On or Off');
  await w.meter('pi 73.5% 30k/41k (auto)').waitFor();
});

test('a server that is killed comes back with the same session', async () => {
  const killed = code.servers();
  assert.equal(killed.length, 1);
  process.kill(killed[0], 'SIGKILL');
  await eventually('another server', () => code.servers().some((pid) => pid !== killed[0]));
  await w.meter('pi 73.5%').waitFor();
});

test('a restart by command brings everything back, and the commands once each', async () => {
  const [old] = code.servers();
  await w.run('Pi: Restart Server');
  await eventually(
    'another server',
    () => code.servers().every((pid) => pid !== old) && code.servers().length === 1,
  );
  await w.meter('pi 73.5%').waitFor();
  assert.equal(await w.timesOffered('Pi: Compact'), 1);
  await w.run('Pi: Compact');
  await w.toast('Compacted: 30,120').waitFor();
});

test('what another program writes into the session shows in meter, tree and transcript', async () => {
  await w.run('Pi: Show Transcript');
  answerFromElsewhere(file, 'Said in a terminal meanwhile.', 34_816);
  await w.meter('pi 85% 35k/41k (auto)').waitFor();
  await w.row(/^Assistant, Said in a terminal meanwhile.*current entry/).waitFor();
  await w.line('Said in a terminal meanwhile.').waitFor();
});

test('a session that is not open is exported, and the current one is so still', async () => {
  await w.menu(w.row(/^Question 0 about the meter/), 'Export Session…');
  await w.option('Markdown').click();
  await eventually('the name', async () => (await w.input.inputValue()).endsWith('.md'));
  await page.keyboard.press('Enter');
  await w.toast('exported to').waitFor();
  await w.meter('pi 85%').waitFor(); // while the notification is still there
  await w.toast('exported to').waitFor();
  await w.dismissAll();
});

test('a clone and a fork are sessions of their own', async () => {
  const sessions = () => readdirSync(dirname(file)).filter((name) => name.endsWith('.jsonl')).length;
  const before = sessions();
  const bytes = readFileSync(file, 'utf8');
  await w.run('Pi: Clone Session');
  await eventually('the clone', () => sessions() === before + 1);
  await w.row(/^Assistant, Said in a terminal meanwhile.*current entry/).waitFor();
  await w.menu(w.row(/^You, One more idea before I merge/), 'Fork into New Session');
  await eventually('the text in the box', async () =>
    (await w.input.inputValue()).startsWith('One more idea before I merge'),
  );
  await page.keyboard.press('Escape');
  await eventually('the fork', () => sessions() === before + 2);
  await w.row(/^Assistant, Done, and ready.*current entry/).waitFor();
  assert.equal(readFileSync(file, 'utf8'), bytes);
});

test('nothing was asked of anybody outside this machine', () => assert.deepEqual(code.external, []));
