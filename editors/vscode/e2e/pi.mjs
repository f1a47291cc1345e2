/** pi's side of a test: its folder with a session in it, a provider on loopback, and another program that writes. */

import { spawn } from 'node:child_process';
import { appendFileSync, readFileSync, realpathSync, utimesSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

import { put } from './harness.mjs';

const CHECKOUT = resolve('../..');
const [HEADER, ...ENTRIES] = readFileSync('e2e/session.jsonl', 'utf8').trimEnd().split('\n');

/** The name of the session every test begins with, and its context window. */
export const NAME = '26 October is 470 Wh short';
const WINDOW = 40_960;

/** What pi calls the folder of a working directory's sessions. */
const encoded = (cwd) => `--${cwd.replace(/^\//, '').replace(/[/\\:]/g, '-')}--`;

/**
 * pi's folder with the session of `folder` in it. Summaries are made without a model, unless `models` names some;
 * the session's own models live at `provider`. A compaction keeps about `kept` tokens as they are.
 */
export function agentFolder(root, folder, { provider = 'http://127.0.0.1:9/v1', models, kept } = {}) {
  const agent = join(root, 'agent');
  writeSettings(agent, models, kept);
  const known = ['qwen3-coder-30b', 'qwen3-coder-480b'].map((id) => ({
    id,
    contextWindow: WINDOW,
    maxTokens: 8_192,
    reasoning: true,
  }));
  const workstation = { baseUrl: provider, api: 'openai-completions', apiKey: 'none', models: known };
  put(join(agent, 'models.json'), { providers: { workstation } });
  addSession(agent, folder);
  return agent;
}

/** pi's settings; `models` are asked for summaries, by default nobody; about `kept` tokens stay as they are. */
export function writeSettings(agent, models = ['offline/extractive'], kept = 6_000) {
  const compaction = { reserveTokens: 8_192, keepRecentTokens: kept, models };
  put(join(agent, 'settings.json'), { compaction, retry: { enabled: false } });
}

/** A session of a folder, begun when that of the file was; `keep`: only so many entries. Returns its file. */
export function addSession(agent, folder, { id, name, keep } = {}) {
  const header = JSON.parse(HEADER);
  const cwd = realpathSync(folder);
  const own = { ...header, id: id ?? header.id, cwd };
  const entries = ENTRIES.slice(0, keep).map((line) => (name ? line.replace(NAME, name) : line));
  const stamp = header.timestamp.replace(/[:.]/g, '-');
  const path = join(agent, 'sessions', encoded(cwd), `${stamp}_${own.id}.jsonl`);
  put(path, `${[JSON.stringify(own), ...entries].join('\n')}\n`);
  return path;
}

/** A session without a name, older than the others of its folder and longer than a tree that is shown whole. */
export function addLongSession(agent, folder, turns = 2_500) {
  const cwd = realpathSync(folder);
  const id = '019a0000-0000-7000-8000-00000000f00d';
  const timestamp = '2025-01-01T00:00:00.000Z';
  const lines = [{ type: 'session', version: 3, id, timestamp, cwd }];
  let parentId = null;
  const say = (role, content) => {
    const entry = { type: 'message', id: lines.length.toString(16).padStart(8, '0'), parentId, timestamp };
    lines.push({ ...entry, message: { role, content: [{ type: 'text', text: content }] } });
    parentId = entry.id;
  };
  for (let turn = 0; turn < turns; turn++) {
    say('user', `Question ${turn} about the meter`);
    say('assistant', `Answer ${turn} is as good as any`);
  }
  const path = join(agent, 'sessions', encoded(cwd), `2025-01-01T00-00-00-000Z_${id}.jsonl`);
  put(path, `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`);
  utimesSync(path, 1.7e9, 1.7e9); // what is newest goes by the file's time
}

/** What another program does: it adds an answer with measured usage to a session's file. Returns the entry's id. */
export function answerFromElsewhere(path, text, totalTokens) {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  const last = JSON.parse(lines.at(-1));
  const id = (Math.floor(Math.random() * 0xffffffff) >>> 0).toString(16).padStart(8, '0');
  const usage = { input: totalTokens - 20, output: 20, cacheRead: 0, cacheWrite: 0, totalTokens };
  const message = {
    role: 'assistant',
    content: [{ type: 'text', text }],
    api: 'openai-completions',
    provider: 'workstation',
    model: 'qwen3-coder-480b',
    usage: { ...usage, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } },
    stopReason: 'stop',
    timestamp: Date.now(),
  };
  const entry = { type: 'message', id, parentId: last.id, timestamp: new Date().toISOString(), message };
  appendFileSync(path, `${JSON.stringify(entry)}\n`);
  return id;
}

/** A provider on loopback that answers as it is told. */
export async function startProvider() {
  const child = spawn(process.env.E2E_PYTHON, ['-m', 'tests.provider'], {
    cwd: CHECKOUT,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [url] = await new Promise((ok, bad) => {
    createInterface(child.stdout).once('line', (line) => ok([line]));
    child.once('exit', (code) => bad(new Error(`the provider ended with ${code}`)));
  });
  return {
    openai: `${url}/v1`,
    /** Answers to give, in order, in the shape of `tests.provider.Reply`. */
    queue: (...replies) => fetch(`${url}/control/script`, { method: 'POST', body: JSON.stringify(replies) }),
    state: async () => (await fetch(`${url}/control/state`)).json(),
    stop() {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.stdin.end();
      return gone;
    },
  };
}

/** Wait until `look` answers with something that is true; what it says last is in the error. */
export async function eventually(what, look, timeout = 30_000) {
  const end = Date.now() + timeout;
  let seen;
  do {
    seen = await look();
    if (seen) return seen;
    await new Promise((resolve) => setTimeout(resolve, 50));
  } while (Date.now() < end);
  throw new Error(`waited in vain: ${what} (last seen: ${JSON.stringify(seen)})`);
}
