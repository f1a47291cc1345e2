/** A selection as part of a prompt. No editor in here. */

import { fence } from './transcriptText';

export interface Selected {
  path: string;
  firstLine: number;
  lastLine: number;
  languageId: string;
  text: string;
}

/** Where the text stands, and the text. */
export function quoteSelection({ path, firstLine, lastLine, languageId, text }: Selected): string {
  const lines = firstLine === lastLine ? String(firstLine) : `${firstLine}-${lastLine}`;
  return `${path}:${lines}\n${fence(text, languageId)}`;
}
