import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ago } from '../../src/nodeTexts';
import { idsToShow, outcome, previewMarkdown } from '../../src/previewText';
import type { Entry } from '../../src/protocol';
import { quoteSelection } from '../../src/selectionText';
import {
  closed,
  EntryLog,
  entryMarkdown,
  fence,
  LiveAnswer,
  messageMarkdown,
  wasAtEnd,
} from '../../src/transcriptText';

const said = (id: string, parentId: string | null, text: string): Entry => ({
  type: 'message',
  id,
  parentId,
  message: { role: 'user', content: text },
});

test('nothing inside a fence closes it', () => {
  assert.equal(fence('a\n```\nb'), '````\na\n```\nb\n````');
});

test('a fence that a message leaves open ends with the message', () => {
  assert.equal(closed('a\n```py\nx'), 'a\n```py\nx\n```');
  assert.equal(closed('````\n```\nx\n'), '````\n```\nx\n````');
  for (const whole of ['no fence', '```\nx\n```', '~~~\n```\n~~~', '``` not `a` fence'])
    assert.equal(closed(whole), whole);
  const live = new LiveAnswer();
  live.take({ type: 'text_delta', contentIndex: 0, delta: '```py\nx' });
  assert.equal(live.text, '## Assistant\n\n```py\nx ▌\n```');
});

test('who sees the end of a transcript follows it, who has scrolled up does not', () => {
  assert.ok(wasAtEnd(99, 100));
  assert.ok(!wasAtEnd(80, 100));
});

test('a transcript follows the path, not the file', () => {
  const log = new EntryLog();
  log.add([said('a', null, 'first'), said('x', 'a', 'dead end'), said('b', 'a', 'second')]);
  const { sections, left } = log.path('b', 10);
  assert.deepEqual(sections, ['## You\n\nfirst', '## You\n\nsecond']);
  assert.equal(left, 0);
  assert.equal(log.last, 'b');
  assert.equal(log.before('x'), 'a');
});

test('a long transcript shows its end and says how much is missing', () => {
  const log = new EntryLog();
  log.add([said('a', null, '1'), said('b', 'a', '2'), said('c', 'b', '3')]);
  assert.deepEqual(log.path('c', 2), { sections: ['## You\n\n2', '## You\n\n3'], left: 1 });
});

test('a cycle of parents ends', () => {
  const log = new EntryLog();
  log.add([said('a', 'b', '1'), said('b', 'a', '2')]);
  assert.equal(log.path('a', 10).sections.length, 2);
});

test('tool output is cut in a transcript and whole in its entry', () => {
  const output = {
    role: 'toolResult',
    toolName: 'read',
    content: [{ type: 'text', text: 'x'.repeat(5_000) }],
  };
  assert.match(messageMarkdown(output), /3000 more characters/);
  assert.ok(messageMarkdown(output, true).includes('x'.repeat(5_000)));
});

test('a cut never splits a surrogate pair', () => {
  const output = { role: 'toolResult', toolName: 'read', content: `${'x'.repeat(1_999)}🙂 and more` };
  assert.doesNotMatch(messageMarkdown(output), /[\ud800-\udbff](?![\udc00-\udfff])/);
});

test('what a message may lack does no harm', () => {
  assert.equal(entryMarkdown({ type: 'message', id: 'a', parentId: null, message: null }), '');
  assert.equal(messageMarkdown({ role: 'assistant', content: null }), '## Assistant');
  assert.match(
    messageMarkdown({ role: 'assistant', content: [], errorMessage: 'overloaded' }),
    /⚠ overloaded/,
  );
});

test('state entries are no part of a transcript, but can be looked at', () => {
  const label: Entry = { type: 'label', id: 'l', parentId: null };
  assert.equal(entryMarkdown(label), '');
  assert.match(entryMarkdown(label, true), /"type": "label"/);
});

test('an answer grows from its pieces, in the order of its blocks', () => {
  const live = new LiveAnswer();
  live.take({ type: 'thinking_delta', contentIndex: 0, delta: 'hm' });
  live.take({ type: 'text_delta', contentIndex: 1, delta: 'Hel' });
  live.take({ type: 'toolcall_delta', contentIndex: 2, delta: '{"pa', toolName: 'read' });
  live.take({ type: 'text_delta', contentIndex: 1, delta: 'lo' });
  live.take({ type: 'toolcall_delta', contentIndex: 2, delta: 'th":1}' });
  assert.match(live.text, /> hm\n\nHello\n\n\*\*read\*\*\n\n```json\n\{"path":1\}\n```/);
  live.clear();
  assert.equal(live.text, '');
});

test('a preview says where the cut falls and what is on either side', () => {
  const entries = new Map([
    ['a', { who: 'You', text: 'pipe | and *stars*', tokens: 1_000 }],
    ['b', { who: 'Assistant', text: 'kept', tokens: 20 }],
  ]);
  const text = previewMarkdown(
    'Short day',
    {
      possible: true,
      isSplitTurn: false,
      firstKeptEntryId: 'b',
      summarizedEntryIds: ['a'],
      keptEntryIds: ['b'],
      tokensBefore: 30_000,
      estimatedTokensAfter: 9_000,
      modifiedFiles: ['src/a.py'],
    },
    entries,
    40_000,
  );
  assert.match(text, /\| Now \| 30,000 \| 75% \|/);
  assert.match(text, /\| Afterwards, about \| 9,000 \| 22.5% \|/);
  assert.match(text, /✂ The cut\n\nIt falls between two turns\. .*\n\n> \*\*Assistant\*\* kept\n/);
  assert.match(text, /pipe \\\| and \\\*stars\\\*/);
  assert.match(text, /- `src\/a\.py`/);
});

test('a preview of what is impossible gives the reason', () => {
  assert.match(
    previewMarkdown('s', { possible: false, reason: 'Already compacted' }, new Map()),
    /Already compacted/,
  );
});

test('of long lists a preview asks for the ends only', () => {
  const ids = Array.from({ length: 30_000 }, (_, index) => `e${index}`);
  assert.equal(
    idsToShow({ possible: true, summarizedEntryIds: ids, keptEntryIds: ids.slice(0, 3) }).length,
    13,
  );
});

test('the outcome of a compaction is told as before and after', () => {
  const result = { entryId: 'c', summary: 's', firstKeptEntryId: 'b', fromExtension: false };
  assert.equal(
    outcome({ ...result, tokensBefore: 32_900, estimatedTokensAfter: 9_312 }),
    'Compacted: 32,900 → 9,312 tokens.',
  );
});

test('a selection says where it stands', () => {
  const selected = {
    path: 'src/a.py',
    firstLine: 3,
    lastLine: 4,
    languageId: 'python',
    text: 'a = 1\nb = 2',
  };
  assert.equal(quoteSelection(selected), 'src/a.py:3-4\n```python\na = 1\nb = 2\n```');
});

test('times are told as people say them', () => {
  const now = Date.UTC(2026, 0, 31);
  const minutes = (count: number): string => ago(now - count * 60_000, now);
  assert.deepEqual([0, 5, 120, 2_880, 60 * 24 * 30].map(minutes), [
    'now',
    '5 min',
    '2 h',
    '2 d',
    '2026-01-01',
  ]);
});
