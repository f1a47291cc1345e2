import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

import { findServer, type Places } from '../../src/server/discovery';

let root: string;
const at = (path: string): string => join(root, path);

function put(path: string, mode = 0o755): string {
  mkdirSync(dirname(at(path)), { recursive: true });
  writeFileSync(at(path), '');
  chmodSync(at(path), mode);
  return at(path);
}

const places = (changes: Partial<Places> = {}): Places => ({
  configured: [],
  path: at('bin'),
  bundled: at('bundled'),
  platform: 'linux',
  ...changes,
});

beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'discovery-'))));
afterEach(() => rmSync(root, { recursive: true }));

test('what is configured is taken as it is', async () => {
  put('bin/pi-ls');
  const found = await findServer(places({ configured: ['/opt/pi-ls', '--x'] }));
  assert.deepEqual(found, { command: '/opt/pi-ls', args: ['--x'], origin: 'setting' });
});

test('the selected Python comes before PATH', async () => {
  put('bin/pi-ls');
  const beside = put('venv/bin/pi-ls');
  assert.equal((await findServer(places({ python: at('venv/bin/python') })))?.command, beside);
});

test('a Python without the server leads on to PATH', async () => {
  const onPath = put('bin/pi-ls');
  const found = await findServer(places({ python: put('venv/bin/python') }));
  assert.deepEqual(found, { command: onPath, args: [], origin: 'path' });
});

test('uv runs the wheel the extension carries, and nothing else', async () => {
  const uvx = put('bin/uvx');
  assert.equal(await findServer(places()), undefined);
  const wheel = put('bundled/pi_ls-0.1.0-py3-none-any.whl', 0o644);
  assert.deepEqual(await findServer(places()), {
    command: uvx,
    args: ['--from', wheel, 'pi-ls'],
    origin: 'uvx',
  });
});

test('nothing is found where nothing is', async () => {
  assert.equal(await findServer(places({ path: undefined })), undefined);
  assert.equal(await findServer(places({ path: '' })), undefined);
});
