/** Talking to the agent: prompts, queueing, stopping, approvals, shell commands, automatic compaction. */

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { put, start } from './harness.mjs';
import { addSession, agentFolder, eventually, startProvider } from './pi.mjs';

let code, w, page, provider, file;

const say = async (text) => {
  await w.run('Pi: Prompt…');
  await w.input.fill(text);
  await page.keyboard.press('Enter');
};
const idle = () =>
  eventually('the agent is idle', async () => (await w.meter().locator('.codicon').count()) === 0);
const requests = async () => (await provider.state()).requests;
const call = (name, args) => ({
  text: null,
  calls: [{ name, arguments: JSON.stringify(args) }],
  finish: 'tool_calls',
});
const dialog = () => page.locator('.monaco-dialog-box');

before(
  async () => {
    provider = await startProvider();
    code = await start({
      prepare({ root, folder }) {
        // so short a session has something to summarize only where little of it is kept
        const agent = agentFolder(root, folder, { provider: provider.openai, kept: 200 });
        file = addSession(agent, folder, { keep: 6 });
        put(join(folder, 'import.py'), 'first = 1\nsecond = 2\n');
        return { env: { PI_CODING_AGENT_DIR: agent } };
      },
    });
    w = code.window;
    page = w.page;
    await w.open();
    await w.meter('%').waitFor({ timeout: 60_000 });
  },
  { timeout: 120_000 },
);
after(async () => {
  await code?.stop();
  await provider?.stop();
});
afterEach(async (context) => {
  await w.shot(`agent-${context.name.replace(/\W+/g, '-')}`);
  if (!context.passed) code.keepLogs('agent');
});

test('an answer is streamed into the transcript beside the editor', { timeout: 180_000 }, async () => {
  await provider.queue({ text: 'Ninety-six. That is all.', piece: 3, pause: 0.4 });
  await say('How many readings are there?');
  await w.line('How many readings are there?').waitFor();
  await w.meter().locator('.codicon-loading').waitFor();
  const growing = w.line('▌');
  await growing.waitFor({ timeout: 120_000 }); // the first request of a server loads a large library
  const early = await growing.innerText();
  await w.line('That is all.').waitFor();
  assert.ok(!early.includes('all.'), early);
  await idle();
  await eventually('it is whole', async () => (await growing.count()) === 0);
});

test('what is said meanwhile is queued and answered afterwards', async () => {
  await provider.queue(
    { text: 'A slow answer comes along.', piece: 3, pause: 0.25 },
    { text: 'And the second one.' },
  );
  await say('Take your time.');
  await w.line('A slow answer').waitFor();
  await say('Then do this.');
  await w.line('And the second one.').waitFor();
  const roles = readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line).message?.role);
  assert.deepEqual(roles.slice(-4), ['user', 'assistant', 'user', 'assistant']);
});

test('a run is stopped, and the connection to the provider with it', async () => {
  const closed = (await provider.state()).closed;
  await provider.queue({ text: 'This one never comes to an end.', piece: 4, pause: 0.05, hang_after: 4 });
  await say('Think for ever.');
  await w.line('This one').waitFor();
  await w.run('Pi: Stop');
  await idle();
  await w.line('Stopped.').waitFor();
  await eventually('the connection is closed', async () => (await provider.state()).closed === closed + 1);
});

test('a change to a file is asked for, and can be looked at before', async () => {
  await provider.queue(
    call('edit', { path: 'import.py', edits: [{ oldText: 'second = 2', newText: 'second = 22' }] }),
    { text: 'Changed.' },
  );
  await say('Make it twenty-two.');
  await dialog().getByText('pi wants to use the tool “edit”').waitFor();
  await dialog().getByText('session “26 October is 470 Wh short” in meterlog').waitFor();
  await w.shot('approval');
  await page.keyboard.press('Enter'); // as somebody does who is typing at the moment
  await page.locator('.monaco-diff-editor').waitFor();
  await w.line('second = 22').waitFor();
  await w.shot('approval-change');
  await w.toast('Edit import.py? (session “26 October is 470 Wh short” in meterlog)').waitFor();
  assert.match(readFileSync(join(code.folder, 'import.py'), 'utf8'), /second = 2\n/);
});

test('a question that was put aside is still asked in the meter, and answered from there', async () => {
  await w.dismissAll();
  await w.meter('asks').click();
  await w.option('Answer the agent’s question…').click();
  await dialog().getByRole('button', { name: 'Allow Once' }).click();
  await w.line('Changed.').waitFor();
  await page.locator('.monaco-diff-editor').waitFor({ state: 'detached' });
  await eventually('the change', () =>
    readFileSync(join(code.folder, 'import.py'), 'utf8').includes('second = 22'),
  );
});

test('what is not allowed is not done, and the agent is told', async () => {
  await provider.queue(call('bash', { command: 'touch forbidden' }), { text: 'Then not.' });
  await say('Make a file.');
  await dialog().getByText('pi wants to use the tool “bash”').waitFor();
  await dialog().getByRole('button', { name: 'Show Call' }).click();
  await w.line(/^touch.forbidden$/).waitFor();
  await w.button('Run touch forbidden?', 'Deny').click();
  await w.line('Then not.').waitFor();
  assert.ok(!existsSync(join(code.folder, 'forbidden')));
  await idle();
});

test('a shell command of the user is run and told', async () => {
  await w.run('Pi: Run Shell Command…');
  await w.input.fill('echo $((40 + 2))');
  await page.keyboard.press('Enter');
  await w.line(/^42$/).waitFor();
});

test('a question about a selection says where it stands', async () => {
  await page.keyboard.press('Control+P');
  await w.input.fill('import.py');
  await w.option('import.py').click();
  await w.line('first = 1').click();
  await page.keyboard.press('Control+A');
  await provider.queue({ text: 'It is a number.' });
  await w.run('Pi: Ask About Selection…');
  await w.input.fill('What is this?');
  await page.keyboard.press('Enter');
  await w.line('It is a number.').waitFor();
  const prompt = JSON.stringify((await requests()).at(-1).body.messages.at(-1));
  assert.match(prompt, /What is this\?\\\\n\\\\nimport\.py:1-3|What is this\?\\n\\nimport\.py:1-3/);
});

test('a prompt of several lines is written in a document and sent from there', async () => {
  await w.run('Pi: Write Prompt in Document');
  await page.locator('.tab.active').filter({ hasText: 'Untitled' }).waitFor();
  await page.keyboard.type('One line,');
  await page.keyboard.press('Enter');
  await page.keyboard.type('and another.');
  await provider.queue({ text: 'Both have come.' });
  await page.getByRole('button', { name: 'Send Prompt' }).click();
  await w.line('Both have come.').waitFor();
  assert.match(JSON.stringify((await requests()).at(-1).body.messages.at(-1)), /One line,\\nand another\./);
});

test('a run that fails is told to somebody who does not look at the transcript', async () => {
  await w.run('View: Close All Editors');
  await provider.queue({ status: 401, body: { error: { message: 'bad key' } } });
  await w.run('Pi: Steer…');
  await w.input.fill('Are you there?');
  await page.keyboard.press('Enter');
  await w.button('bad key', 'Show Transcript').click();
  await w.line('Are you there?').waitFor();
});

test('automatic compaction shows in the meter and interrupts nobody', async () => {
  await idle();
  await w.dismissAll();
  await provider.queue({
    text: 'Large.',
    usage: { prompt_tokens: 33_000, completion_tokens: 10, total_tokens: 33_010 },
  });
  await say('Fill the context.');
  const compaction = () => readFileSync(file, 'utf8').includes('"type":"compaction"');
  await eventually('the compaction', compaction);
  await idle();
  await w.meter('(auto)').waitFor();
  assert.equal(await page.locator('.notification-toast').count(), 0);
});

test('a server that ends in the middle of a run says what is lost, and nothing goes on growing', async () => {
  await provider.queue({ text: 'This one is cut off here.', piece: 4, pause: 0.05, hang_after: 4 });
  await say('Begin something.');
  await w.line('▌').waitFor();
  process.kill(code.servers()[0], 'SIGKILL');
  await w.toast('the server ended while the agent worked in “26 October is 470 Wh short”').waitFor();
  await w.meter('%').waitFor();
  await w.line('Begin something.').waitFor();
  await eventually('nothing is being written', async () => (await w.line('▌').count()) === 0);
});

test('nor is a question left that nobody waits for', async () => {
  await w.dismissAll();
  await provider.queue(call('bash', { command: 'touch forbidden' }));
  await say('Make a file again.');
  await dialog().waitFor();
  process.kill(code.servers()[0], 'SIGKILL');
  await w.toast('the server ended while the agent worked').waitFor();
  await dialog().getByRole('button', { name: 'Allow Once' }).click();
  await w.toast('this is not asked any more, and was not done').waitFor();
  assert.ok(!existsSync(join(code.folder, 'forbidden')));
});

test('a tool that is always allowed here is asked about once', async () => {
  await provider.queue(call('bash', { command: 'echo one' }), call('bash', { command: 'echo two' }), {
    text: 'Both have run.',
  });
  await say('Run two things.');
  await dialog().getByText('pi wants to use the tool “bash”').waitFor();
  await dialog().getByRole('button', { name: 'Always Allow Here' }).click();
  await w.line('Both have run.').waitFor();
});
