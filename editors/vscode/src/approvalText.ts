/** What a person is shown of a tool call that is still to be approved. No editor in here. */

import { isAbsolute, join, normalize } from 'node:path';

export interface ToolArguments {
  path?: unknown;
  content?: unknown;
  command?: unknown;
  oldText?: unknown;
  newText?: unknown;
  edits?: unknown;
}

interface Edit {
  oldText: string;
  newText: string;
}

/**
 * The new text of the file, undefined where the call does not fit it (the agent will be told so). All edits are
 * about the file as it is, and each names a text that occurs in it once.
 */
export function proposedText(toolName: string, args: ToolArguments, before: string): string | undefined {
  if (toolName === 'write') return typeof args.content === 'string' ? args.content : undefined;
  const edits = editsOf(args).map((edit) => ({ ...edit, at: before.indexOf(edit.oldText) }));
  edits.sort((one, other) => one.at - other.at);
  let text = '';
  let end = 0;
  for (const { oldText, newText, at } of edits) {
    const isUnique = oldText !== '' && at >= 0 && !before.includes(oldText, at + 1);
    if (!isUnique || at < end) return undefined;
    text += before.slice(end, at) + newText;
    end = at + oldText.length;
  }
  return edits.length === 0 ? undefined : text + before.slice(end);
}

function editsOf(args: ToolArguments): Edit[] {
  const several: unknown[] = Array.isArray(args.edits) ? args.edits : [];
  const single = typeof args.oldText === 'string' ? [args] : [];
  return [...several, ...single].map((edit) => {
    const { oldText, newText } = (edit ?? {}) as Partial<Record<keyof Edit, unknown>>;
    return {
      oldText: typeof oldText === 'string' ? oldText : '',
      newText: typeof newText === 'string' ? newText : '',
    };
  });
}

/** The file a model means: relative to the session's folder, `~` for home, a leading `@` as in a mention. */
export function locate(path: string, folder: string, home: string): string {
  const named = path.startsWith('@') ? path.slice(1) : path;
  if (named === '~' || named.startsWith('~/')) return normalize(join(home, named.slice(1)));
  return isAbsolute(named) ? normalize(named) : normalize(join(folder, named));
}

/** A call that changes no file, as a text with the ending that tells its language. */
export function callText(toolName: string, args: ToolArguments): { text: string; suffix: string } {
  if (toolName === 'bash' && typeof args.command === 'string')
    return { text: `${args.command}\n`, suffix: '.sh' };
  return { text: `${JSON.stringify(args, null, 2)}\n`, suffix: '.json' };
}
