import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  distance,
  escape,
  figures,
  levelOf,
  meterText,
  percentText,
  shortTokens,
  spoken,
  tooltip,
} from '../../src/meter';
import { session, usage } from './builders';

test('tokens are short', () => {
  const expected = {
    0: '0',
    812: '812',
    999: '999',
    1_000: '1k',
    9_349: '9.3k',
    9_960: '10k',
    33_100: '33k',
  };
  for (const [count, text] of Object.entries(expected)) assert.equal(shortTokens(Number(count)), text);
  assert.equal(shortTokens(999_700), '1M');
  assert.equal(shortTokens(1_250_000), '1.3M');
  assert.equal(shortTokens(12_000_000), '12M');
});

test('a percentage is never rounded up to a step it has not reached', () => {
  assert.equal(percentText(12.3), '12.3%');
  assert.equal(percentText(89.99), '89.9%');
  assert.equal(percentText(100), '100%');
  assert.equal(percentText(0), '0%');
  assert.equal(percentText(103.25), '103.2%');
});

test('the meter tells percent, tokens, window and automatic compaction', () => {
  assert.equal(meterText(session()), 'pi 12.3% 25k/200k (auto)');
  assert.equal(meterText(session(usage({ autoCompactionEnabled: false }))), 'pi 12.3% 25k/200k');
  assert.equal(meterText(session(usage({ autoCompactionPaused: true }))), 'pi 12.3% 25k/200k (auto paused)');
});

test('an estimate is told from a measured value', () => {
  assert.equal(figures(usage({ source: 'estimate' })), '~12.3% 25k/200k (auto)');
  assert.equal(figures(usage({ source: 'measured+estimate' })), '~12.3% 25k/200k (auto)');
});

test('right after a compaction the meter is a placeholder, not a number', () => {
  const unknown = usage({ tokens: null, percent: null });
  assert.equal(meterText(session(unknown)), 'pi ?/200k (auto)');
  assert.equal(levelOf(unknown, { warningPercent: 70, errorPercent: 90 }), 'normal');
  for (const text of [meterText(session(unknown)), spoken(session(unknown))])
    assert.doesNotMatch(text, /NaN|null|0%/);
});

test('without a model or a usable window only a question mark is shown', () => {
  assert.equal(meterText(session({})), 'pi ?');
  assert.match(tooltip(session({}), {}, 'w'), /No model is selected/);
  const model = { provider: 'p', id: 'm' };
  assert.match(tooltip(session({}, { model }), {}, 'w'), /context window of p\/m is not known/);
});

test('there may be no session', () => {
  assert.equal(meterText(undefined), 'pi –');
  assert.equal(spoken(undefined), 'pi: no session');
  assert.match(tooltip(undefined, {}, 'w'), /command:piLs\.newSession/);
});

test('a compaction spins, whoever began it', () => {
  const compacting = session();
  compacting.compacting = 'threshold';
  assert.equal(meterText(compacting), '$(sync~spin) pi 12.3% 25k/200k (auto) compacting');
  assert.match(tooltip(compacting, {}, 'w'), /command:piLs\.cancelCompaction/);
  assert.match(spoken(compacting), /Compacting\.$/);
});

test('a question of the agent shows before anything else, and leads to its answer', () => {
  const asking = session();
  asking.running = true;
  asking.asking.add('q1');
  assert.equal(meterText(asking), '$(bell-dot) pi 12.3% 25k/200k (auto) asks');
  assert.match(tooltip(asking, {}, 'w'), /command:piLs\.answerQuestion/);
  assert.match(spoken(asking), /Waits for your answer\.$/);
});

test('the tooltip tells the newest problems of the session', () => {
  const troubled = session();
  troubled.problems.push('first', 'second', 'third', 'The file *is* read-only');
  const text = tooltip(troubled, {}, 'w');
  assert.match(text, /\$\(warning\) The file \\\*is\\\* read\\-only/);
  assert.doesNotMatch(text, /first/);
});

test('with several folders the meter names the one it means', () => {
  assert.equal(meterText(session(), 'app'), 'pi app 12.3% 25k/200k (auto)');
});

test('the levels begin exactly at their thresholds', () => {
  const levels = { warningPercent: 70, errorPercent: 90 };
  const at = (percent: number): string => levelOf(usage({ percent }), levels);
  assert.deepEqual([69.99, 70, 89.99, 90, 140].map(at), ['normal', 'warning', 'warning', 'error', 'error']);
});

test('the distance to automatic compaction is told, or why there is none', () => {
  assert.equal(distance(usage()), '159,016 tokens until automatic compaction at 183,616.');
  assert.match(distance(usage({ tokens: 190_000 })), /^Past the 183,616 tokens/);
  assert.match(distance(usage({ autoCompactionPaused: true })), /pauses/);
  assert.match(distance(usage({ autoCompactionEnabled: false })), /is off/);
  const invalid = usage();
  delete invalid.thresholdTokens;
  assert.match(distance(invalid), /valid settings/);
  assert.match(distance(usage({ tokens: null, estimatedTokens: 3_616 })), /^180,000 tokens/);
});

test('the tooltip says why automatic compaction pauses, in the server’s words', () => {
  const paused = session(usage({ autoCompactionPaused: true }));
  paused.paused = 'Three compactions in a row failed';
  assert.match(tooltip(paused, {}, 'w'), /Three compactions in a row failed/);
});

test('the tooltip has the categories as a table, the largest first', () => {
  const text = tooltip(session(), { categories: { user: 100, toolResults: 300, images: 0 } }, 'w');
  const rows = text.split('\n').filter((line) => line.startsWith('| ') && line.includes('%'));
  assert.match(rows[0] ?? '', /Tool output \| 300 \| &nbsp;75%/);
  assert.match(rows[1] ?? '', /Your messages \| 100 \| &nbsp;25%/);
  assert.equal(rows.length, 2);
});

test('a session’s name cannot be markup or a link', () => {
  const text = tooltip(session(usage(), { name: '[run](command:evil) $(flame) <b>' }), {}, 'w');
  assert.doesNotMatch(text, /\]\(command:evil\)/);
  assert.ok(text.includes(escape('[run](command:evil) $(flame) <b>')));
});

test('a screen reader gets whole words', () => {
  assert.equal(spoken(session()), 'pi: context of “Short day” 12.3 percent full, 24,600 of 200,000 tokens.');
});
