import assert from 'node:assert/strict';
import { test } from 'node:test';

import { callText, locate, proposedText } from '../../src/approvalText';

const edit = (oldText: string, newText: string): { oldText: string; newText: string } => ({
  oldText,
  newText,
});

test('a change to approve is the file as it would be', () => {
  assert.equal(proposedText('edit', edit('one', 'two'), 'one 1'), 'two 1');
  assert.equal(proposedText('edit', { edits: [edit('c', '$&'), edit('a', 'b')] }, 'a c'), 'b $&');
  assert.equal(proposedText('write', { content: 'new' }, 'old'), 'new');
});

test('what the agent would be refused is not shown as a change', () => {
  assert.equal(proposedText('edit', edit('gone', 'x'), 'text'), undefined);
  assert.equal(proposedText('edit', edit('one', 'two'), 'one one'), undefined, 'which of them?');
  const onResult = [edit('a', 'b'), edit('b', 'c')];
  assert.equal(
    proposedText('edit', { edits: onResult }, 'a'),
    undefined,
    'edits are about the file as it is',
  );
  assert.equal(proposedText('edit', { edits: [edit('ab', 'x'), edit('bc', 'y')] }, 'abc'), undefined);
  assert.equal(proposedText('edit', { edits: [] }, 'a'), undefined);
  assert.equal(proposedText('edit', { edits: [null] }, 'a'), undefined);
});

test('the file is looked for where the agent would look for it', () => {
  const at = (path: string): string => locate(path, '/work/meterlog', '/home/mira');
  assert.equal(at('src/../a.py'), '/work/meterlog/a.py');
  assert.equal(at('/etc/hosts'), '/etc/hosts');
  assert.equal(at('~/notes.md'), '/home/mira/notes.md');
  assert.equal(at('@a.py'), '/work/meterlog/a.py');
});

test('a call that changes no file is shown whole', () => {
  assert.deepEqual(callText('bash', { command: 'a\nb' }), { text: 'a\nb\n', suffix: '.sh' });
  assert.deepEqual(callText('fetch', { path: 'x' }), { text: '{\n  "path": "x"\n}\n', suffix: '.json' });
});
