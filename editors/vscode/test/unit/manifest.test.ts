/** What the manifest promises, held to the code: commands, settings, texts in both languages. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { COMMANDS } from '../../src/protocol';

interface Manifest {
  contributes: {
    commands: { command: string; title: string }[];
    menus: Record<string, { command: string; when?: string }[]>;
    configuration: { properties: Record<string, { scope: string }> };
    viewsWelcome: { contents: string }[];
  };
  capabilities: { untrustedWorkspaces: { restrictedConfigurations: string[] } };
}

const read = (path: string): string => readFileSync(path, 'utf8');
const json = (path: string): unknown => JSON.parse(read(path));

const manifest = json('package.json') as Manifest;
const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => read(join('src', name)))
  .join('\n');
const matches = (text: string, pattern: RegExp): Set<string> =>
  new Set(Array.from(text.matchAll(pattern), (match) => match[1] ?? ''));

const offered = new Set(manifest.contributes.commands.map(({ command }) => command));
const registered = matches(sources, /register\(\s*'(piLs\.[\w.]+)'/g);

test('every command that is offered is registered, and the other way round', () => {
  assert.deepEqual([...registered].sort(), [...offered].sort());
});

test('no command has an id of the server, which two clients could not both have', () => {
  const servers = new Set<string>(Object.values(COMMANDS));
  assert.deepEqual(
    [...offered].filter((id) => servers.has(id)),
    [],
  );
});

test('menus, links and buttons lead to commands that are there', () => {
  const linked = matches(
    read('package.json') + read('package.nls.json') + sources,
    /command:(piLs\.[\w.]+)/g,
  );
  const used = Object.values(manifest.contributes.menus).flatMap((items) =>
    items.map(({ command }) => command),
  );
  const run = matches(sources, /command: '(piLs\.[\w.]+)'/g);
  const views = new Set(['piLs.tree.focus']);
  for (const id of [...linked, ...used, ...run]) assert.ok(offered.has(id) || views.has(id), id);
});

test('what only makes sense on an entry is not in the palette', () => {
  const hidden = manifest.contributes.menus['commandPalette']?.filter(({ when }) => when === 'false') ?? [];
  assert.ok(hidden.some(({ command }) => command === 'piLs.goToEntry'));
});

test('settings that name programs, folders or models belong to the machine and are restricted', () => {
  const { properties } = manifest.contributes.configuration;
  const restricted = new Set(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations);
  for (const key of [
    'piLs.server.command',
    'piLs.settings',
    'piLs.model',
    'piLs.agentDir',
    'piLs.sessionDir',
  ]) {
    assert.equal(properties[key]?.scope, 'machine', key);
    assert.ok(restricted.has(key), key);
  }
});

test('every setting the code reads is declared', () => {
  const asked = matches(read('src/configuration.ts'), /read\('([\w.]+)'/g);
  assert.equal(asked.size, Object.keys(manifest.contributes.configuration.properties).length);
  for (const key of asked) assert.ok(manifest.contributes.configuration.properties[`piLs.${key}`], key);
});

test('the manifest’s texts are there in both languages', () => {
  const english = json('package.nls.json') as Record<string, string>;
  const chinese = json('package.nls.zh-cn.json') as Record<string, string>;
  assert.deepEqual(Object.keys(chinese).sort(), Object.keys(english).sort());
  const used = matches(read('package.json'), /"%([^%"]+)%"/g);
  assert.deepEqual([...used].sort(), Object.keys(english).sort());
});

test('every text of the code is there in Chinese, with the same places for values', () => {
  const chinese = json('l10n/bundle.l10n.zh-cn.json') as Record<string, string>;
  const texts = matches(sources, /\bt\(\s*'((?:[^'\\]|\\.)*)'/g);
  const places = (text: string): string[] => [...matches(text, /(\{\d\})/g)].sort();
  assert.deepEqual(
    Object.keys(chinese).filter((text) => !texts.has(text)),
    [],
    'not used any more',
  );
  assert.deepEqual(
    [...texts].filter((text) => !(text in chinese)),
    [],
    'not translated',
  );
  for (const [text, translated] of Object.entries(chinese))
    assert.deepEqual(places(translated), places(text), text);
});
