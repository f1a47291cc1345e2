/** What a file would be after a tool call that is still to be approved. No editor in here. */

export interface ToolArguments {
  path?: unknown;
  content?: unknown;
  oldText?: unknown;
  newText?: unknown;
  edits?: unknown;
}

interface Edit {
  oldText: string;
  newText: string;
}

/** The new text of the file, undefined where the call does not fit the file (the agent will be told so). */
export function proposedText(toolName: string, args: ToolArguments, before: string): string | undefined {
  if (toolName === 'write') return typeof args.content === 'string' ? args.content : undefined;
  let text = before;
  for (const edit of editsOf(args)) {
    const at = text.indexOf(edit.oldText);
    if (edit.oldText === '' || at < 0) return undefined;
    text = text.slice(0, at) + edit.newText + text.slice(at + edit.oldText.length);
  }
  return text;
}

function editsOf(args: ToolArguments): Edit[] {
  const given: unknown[] = Array.isArray(args.edits) ? args.edits : [args];
  return given.map((edit) => {
    const { oldText, newText } = edit as Partial<Record<keyof Edit, unknown>>;
    return {
      oldText: typeof oldText === 'string' ? oldText : '',
      newText: typeof newText === 'string' ? newText : '',
    };
  });
}
