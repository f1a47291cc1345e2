import assert from 'node:assert/strict';
import { test } from 'node:test';

import { commandLine, fitting } from '../../src/settingValues';

test('a setting of a wrong kind counts as not set', () => {
  assert.equal(fitting('many', 70), 70);
  assert.equal(fitting(NaN, 70), 70);
  assert.equal(fitting(80, 70), 80);
  assert.equal(fitting(['x'], ''), '');
  assert.deepEqual(fitting('nonsense', {}), {});
  assert.deepEqual(fitting([], {}), {});
  assert.deepEqual(fitting(null, {}), {});
  assert.equal(fitting('foo', 'ask', ['ask', 'none']), 'ask');
  assert.equal(fitting('none', 'ask', ['ask', 'none']), 'none');
});

test('a program is a list of words, or a text that is the program alone', () => {
  assert.deepEqual(commandLine(['/opt/pi-ls', '--x']), ['/opt/pi-ls', '--x']);
  assert.deepEqual(commandLine(' /opt/my tools/pi-ls '), ['/opt/my tools/pi-ls']);
  for (const nothing of [undefined, null, '', [1], { a: 1 }, 5]) assert.deepEqual(commandLine(nothing), []);
});
