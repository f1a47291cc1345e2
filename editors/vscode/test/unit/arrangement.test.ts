import assert from 'node:assert/strict';
import { test } from 'node:test';

import { arrange, leafOrBelow, lengthOfBranch, millis, otherEnds, type Row } from '../../src/arrangement';
import { chain, node } from './builders';

/** Rows as text: a branch's head is followed by what it holds in brackets. */
const drawn = (rows: Row[]): string =>
  rows.map((row) => row.node.id + (row.branch.length > 0 ? `[${drawn(row.branch)}]` : '')).join(' ');

test('a linear talk is a flat list', () => {
  assert.equal(drawn(arrange(chain('a* b* c!'))), 'a b c');
});

test('the path stays on one level; what forks off is folded right after where it left', () => {
  const nodes = [...chain('a* b*'), ...chain('x y', 'b'), ...chain('c* d!', 'b')];
  assert.equal(drawn(arrange(nodes)), 'a b x[y] c d');
});

test('a branch of one entry has nothing to unfold', () => {
  const nodes = [...chain('a*'), ...chain('x', 'a'), ...chain('b!', 'a')];
  const rows = arrange(nodes);
  assert.equal(drawn(rows), 'a x b');
  assert.equal(rows[1]?.branch.length, 0);
});

test('at a fork without a path every branch is folded', () => {
  const nodes = [...chain('a!'), ...chain('x y', 'a'), ...chain('p q', 'a')];
  assert.equal(drawn(arrange(nodes)), 'a x[y] p[q]');
});

test('forks inside a branch are folded in it, and its size counts them all', () => {
  const nodes = [
    ...chain('a*'),
    ...chain('x y', 'a'),
    ...chain('p q', 'y'),
    ...chain('r', 'y'),
    ...chain('b!', 'a'),
  ];
  const rows = arrange(nodes);
  assert.equal(drawn(rows), 'a x[y p[q] r] b');
  assert.equal(rows.find((row) => row.node.id === 'x')?.size, 5);
});

test('several roots are branches of nothing', () => {
  assert.equal(drawn(arrange([...chain('x y'), ...chain('a* b!')])), 'x[y] a b');
});

test('a node whose parent is not shown is a root, not lost', () => {
  assert.equal(
    drawn(arrange([node('b', 'gone', { onPath: true }), node('c', 'b', { isLeaf: true, onPath: true })])),
    'b c',
  );
});

test('forty thousand entries, forking all the way down, are arranged without recursion', () => {
  const nodes = [];
  let parent: string | null = null;
  for (let index = 0; index < 20_000; index++) {
    nodes.push(node(`n${index}`, parent));
    nodes.push(node(`x${index}`, parent));
    parent = `n${index}`;
  }
  const began = performance.now();
  let count = 0;
  const pending = [...arrange(nodes)];
  for (let row = pending.pop(); row !== undefined; row = pending.pop()) {
    count++;
    pending.push(...row.branch);
  }
  assert.equal(count, 40_000);
  assert.ok(performance.now() - began < 2_000);
});

test('the other ends are where one can go, the newest first', () => {
  const nodes = [
    ...chain('a*'),
    ...chain('x', 'a'),
    node('y', 'x', { timestamp: 2_000 }),
    node('z', 'x', { timestamp: 3_000 }),
    ...chain('b!', 'a'),
  ];
  assert.deepEqual(
    otherEnds(nodes).map(({ id }) => id),
    ['z', 'y'],
  );
  const byId = new Map(nodes.map((one) => [one.id, one]));
  assert.equal(lengthOfBranch(byId.get('z') ?? node('?', null), byId), 2);
});

test('times are read as text and as numbers, and what is none is 0', () => {
  assert.equal(millis('1970-01-01T00:00:01.000Z'), 1_000);
  assert.equal(millis(1_000), 1_000);
  assert.equal(millis('soon'), 0);
  assert.equal(millis(undefined), 0);
});

test('who goes on from the leaf leaves nothing, who goes back or aside does', () => {
  const nodes = [node('a', null), node('b', 'a', { isLeaf: true }), node('c', 'b'), node('x', 'a')];
  const leaves = nodes.map((one) => leafOrBelow(one, nodes)?.id);
  assert.deepEqual(leaves, [undefined, 'b', 'b', undefined]);
});
