/**
 * The session's tree as a person reads it: a talk is a flat list, only what forks off it is folded away.
 *
 * The nodes of the path from the root to the leaf stay on one level, however often the talk forked on the way.
 * A branch beside the path stands right after the node it left, and holds its own talk the same way.
 */

import type { TreeNode } from './protocol';

export interface Row {
  readonly node: TreeNode;
  /** What follows the node inside its folded branch; empty for a node of a flat list. */
  readonly branch: Row[];
  /** How many nodes the branch holds, itself included. */
  readonly size: number;
}

/** Rows of a whole tree, from nodes in the server's order (depth first, children in their order). */
export function arrange(nodes: readonly TreeNode[]): Row[] {
  const ids = new Set(nodes.map((node) => node.id));
  const children = new Map<string | null, TreeNode[]>();
  for (const node of nodes) {
    const parent = node.parentId !== null && ids.has(node.parentId) ? node.parentId : null;
    const siblings = children.get(parent);
    if (siblings) siblings.push(node);
    else children.set(parent, [node]);
  }
  const sizes = sizesOf(nodes, children);
  const rows: Row[] = [];
  // No recursion: a session may fork thousands of times, one inside the other.
  const pending: { into: Row[]; from: string | null }[] = [{ into: rows, from: null }];
  for (let work = pending.pop(); work !== undefined; work = pending.pop()) {
    let from: string | null = work.from;
    for (;;) {
      const followers: readonly TreeNode[] = children.get(from) ?? [];
      const next = continuation(followers);
      for (const node of followers) {
        if (node === next) continue;
        const branch: Row[] = [];
        work.into.push({ node, branch, size: sizes.get(node.id) ?? 1 });
        pending.push({ into: branch, from: node.id });
      }
      if (next === undefined) break;
      work.into.push({ node: next, branch: [], size: 1 });
      from = next.id;
    }
  }
  return rows;
}

/** The one of some siblings that goes on on the same level: the only one, or the one on the path. */
function continuation(siblings: readonly TreeNode[]): TreeNode | undefined {
  return siblings.length === 1 ? siblings[0] : siblings.find((node) => node.onPath);
}

function sizesOf(
  nodes: readonly TreeNode[],
  children: ReadonlyMap<string | null, TreeNode[]>,
): Map<string, number> {
  const sizes = new Map<string, number>();
  for (const { id } of nodes.toReversed()) {
    sizes.set(
      id,
      (children.get(id) ?? []).reduce((sum, child) => sum + (sizes.get(child.id) ?? 1), 1),
    );
  }
  return sizes;
}

/** The ends of the other branches, newest first: where one can go that is not on the path. */
export function otherEnds(nodes: readonly TreeNode[]): TreeNode[] {
  const parents = new Set(nodes.map((node) => node.parentId));
  return nodes
    .filter((node) => !node.onPath && !parents.has(node.id))
    .sort((one, other) => millis(other.timestamp) - millis(one.timestamp));
}

/** The node that is marked as the leaf where the given one is it, or follows it: nothing is left by going there. */
export function leafOrBelow(node: TreeNode, nodes: readonly TreeNode[]): TreeNode | undefined {
  const byId = new Map(nodes.map((one) => [one.id, one]));
  for (let at: TreeNode | undefined = node; at !== undefined;) {
    if (at.isLeaf) return at;
    at = at.parentId === null ? undefined : byId.get(at.parentId);
  }
  return undefined;
}

/** How many nodes lie between a node and the path. */
export function lengthOfBranch(node: TreeNode, byId: ReadonlyMap<string, TreeNode>): number {
  let count = 0;
  for (let at: TreeNode | undefined = node; at !== undefined && !at.onPath; count++) {
    at = at.parentId === null ? undefined : byId.get(at.parentId);
  }
  return count;
}

/** An entry's time in milliseconds since 1970; 0 where it has none that can be read. */
export function millis(timestamp: string | number | undefined): number {
  const value = typeof timestamp === 'number' ? timestamp : Date.parse(timestamp ?? '');
  return Number.isFinite(value) ? value : 0;
}
