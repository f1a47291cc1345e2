/** Entries and messages of a session as Markdown, and the answer that is just being written. No editor in here. */

import { t } from './l10n';
import { shortTokens } from './meter';
import { textField, type Block, type Entry, type Message } from './protocol';

/** Characters of one tool result that a transcript shows; the entry itself shows all of it. */
const RESULT_LIMIT = 2_000;

/** A fenced block that nothing inside can close. */
export function fence(text: string, language = ''): string {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([ticks]) => ticks.length));
  const ticks = '`'.repeat(longest + 1);
  return `${ticks}${language}\n${text.replace(/\n$/, '')}\n${ticks}`;
}

/** Lines that may be out of view below for a reader who is at the end: that of the cursor, and empty ones. */
const NEARLY_AT_END = 3;

/** Whether somebody who sees the lines up to `seen` sees the end of a text whose last line is `last`. */
export const wasAtEnd = (seen: number, last: number): boolean => last - seen <= NEARLY_AT_END;

/** Markdown with every fence closed, so that what follows is not taken for code. */
export function closed(markdown: string): string {
  let open: string | undefined;
  for (const line of markdown.split('\n')) {
    const [, ticks = '', info = ''] = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line) ?? [];
    if (ticks === '') continue;
    if (open === undefined) {
      if (!(ticks.startsWith('`') && info.includes('`'))) open = ticks;
    } else if (ticks.startsWith(open) && info.trim() === '') {
      open = undefined;
    }
  }
  return open === undefined ? markdown : `${markdown.replace(/\n$/, '')}\n${open}`;
}

function shortened(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const cut = text.slice(0, limit).replace(/[\ud800-\udbff]$/, '');
  return `${cut}\n… ${t('{0} more characters', text.length - cut.length)}`;
}

const blocksOf = (content: Message['content']): Block[] =>
  typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);

/** The text a message says, without what it thinks or calls. */
export function plainText(message: Message): string {
  if (message.role === 'bashExecution') return `$ ${message.command ?? ''}\n${message.output ?? ''}`;
  if (message.summary !== undefined) return message.summary;
  return blocksOf(message.content)
    .filter((block) => block.type === 'text')
    .map((block) => block.text ?? '')
    .join('\n');
}

/** One message as a section; `whole`: nothing of it is cut. */
export function messageMarkdown(message: Message, whole = false): string {
  const limit = whole ? Infinity : RESULT_LIMIT;
  const section = (heading: string, ...parts: string[]): string =>
    [`## ${heading}`, ...parts.filter((part) => part.trim() !== '')].join('\n\n');
  switch (message.role) {
    case 'user':
      return section(t('You'), ...blocksOf(message.content).map((block) => blockMarkdown(block, limit)));
    case 'assistant':
      return section(
        t('Assistant'),
        ...blocksOf(message.content).map((block) => blockMarkdown(block, limit)),
        stopped(message),
      );
    case 'toolResult': {
      const name = message.toolName ?? t('tool');
      const heading = message.isError ? t('{0} failed', name) : t('Result of {0}', name);
      const text = plainText(message);
      const images = blocksOf(message.content).filter((block) => block.type === 'image');
      return section(
        heading,
        text.trim() === '' ? '' : fence(shortened(text, limit)),
        ...images.map((block) => blockMarkdown(block, limit)),
      );
    }
    case 'bashExecution': {
      const exit = message.exitCode ? t('Exit code {0}.', message.exitCode) : '';
      const output =
        (message.output ?? '').trim() === '' ? '' : fence(shortened(message.output ?? '', limit));
      return section(t('Shell command'), fence(message.command ?? '', 'sh'), output, exit);
    }
    case 'compactionSummary':
      return section(t('Summary of what came before'), quoted(message.summary ?? ''));
    case 'branchSummary':
      return section(t('Summary of another branch'), quoted(message.summary ?? ''));
    case 'system':
      return section(t('System prompt'), fence(shortened(plainText(message), limit)));
    default:
      return section(message.customType ?? message.role, shortened(plainText(message), limit));
  }
}

function blockMarkdown(block: Block, limit: number): string {
  switch (block.type) {
    case 'text':
      return closed(block.text ?? '');
    case 'thinking':
      return quoted((block.thinking ?? '').trim());
    case 'toolCall':
      return `**${block.name ?? t('tool')}**\n\n${fence(shortened(argumentsText(block.arguments), limit), 'json')}`;
    case 'image':
      return `*${t('image')} ${block.mimeType ?? ''}*`;
    default:
      return '';
  }
}

const argumentsText = (given: unknown): string =>
  typeof given === 'string' ? given : JSON.stringify(given ?? {}, null, 2);

const quoted = (text: string): string =>
  text === ''
    ? ''
    : text
        .split('\n')
        .map((line) => `> ${line}`)
        .join('\n');

function stopped(message: Message): string {
  if (message.stopReason === 'aborted') return `⚠ ${t('Stopped.')}`;
  if (message.errorMessage) return `⚠ ${message.errorMessage}`;
  return message.stopReason === 'length' ? `⚠ ${t('Cut off at the token limit.')}` : '';
}

/** One entry as a section, empty for entries that say nothing to a reader. */
export function entryMarkdown(entry: Entry, whole = false): string {
  switch (entry.type) {
    case 'message':
      return entry.message ? messageMarkdown(entry.message, whole) : '';
    case 'compaction': {
      const before = entry.tokensBefore
        ? ` (${t('before: {0} tokens', shortTokens(entry.tokensBefore))})`
        : '';
      return `## ${t('Compacted')}${before}\n\n${quoted(entry.summary ?? '')}`;
    }
    case 'branch_summary':
      return messageMarkdown({ role: 'branchSummary', summary: entry.summary ?? '' }, whole);
    case 'custom_message':
      return entry.display === false && !whole
        ? ''
        : messageMarkdown(
            { role: 'custom', content: entry.content ?? '', customType: entry.customType ?? '' },
            whole,
          );
    default:
      return whole ? `## ${entry.type}\n\n${fence(JSON.stringify(entry, null, 2), 'json')}` : '';
  }
}

interface Line {
  readonly id: string;
  readonly parentId: string | null;
  /** The id of the entry before it in the file; null for the first. */
  readonly before: string | null;
  readonly text: string;
}

/** The entries of one session that were read so far, each as its section only: bodies are the server's. */
export class EntryLog {
  readonly #lines = new Map<string, Line>();
  #last: string | null = null;

  /** The id of the newest entry, after which more can be asked for. */
  get last(): string | null {
    return this.#last;
  }

  /** Take in entries in file order. */
  add(entries: readonly Entry[]): void {
    for (const entry of entries) {
      this.#lines.set(entry.id, {
        id: entry.id,
        parentId: entry.parentId,
        before: this.#last,
        text: entryMarkdown(entry),
      });
      this.#last = entry.id;
    }
  }

  /** Forget everything: the file was written anew. */
  clear(): void {
    this.#lines.clear();
    this.#last = null;
  }

  has(id: string): boolean {
    return this.#lines.has(id);
  }

  /** The id of the entry before that one in the file. */
  before(id: string): string | null {
    return this.#lines.get(id)?.before ?? null;
  }

  /** The sections from the root to an entry, at most the last `limit`, and how many were left out. */
  path(leafId: string | null, limit: number): { sections: string[]; left: number } {
    const sections: string[] = [];
    const seen = new Set<string>();
    for (let id = leafId; id !== null && !seen.has(id);) {
      seen.add(id);
      const line = this.#lines.get(id);
      if (line === undefined) break;
      if (line.text !== '') sections.push(line.text);
      id = line.parentId;
    }
    const left = Math.max(0, sections.length - limit);
    return { sections: sections.slice(0, limit).reverse(), left };
  }
}

interface Delta {
  type: string;
  contentIndex: number;
  delta: string;
  toolName?: string;
}

/** The answer that is being written, from the pieces of `pi/message_update`. */
export class LiveAnswer {
  readonly #blocks = new Map<number, Block>();

  take(piece: Delta): void {
    const block = this.#blocks.get(piece.contentIndex) ?? { type: 'text' };
    switch (piece.type) {
      case 'text_delta':
        block.text = (block.text ?? '') + piece.delta;
        break;
      case 'thinking_delta':
        block.type = 'thinking';
        block.thinking = (block.thinking ?? '') + piece.delta;
        break;
      case 'toolcall_delta':
        block.type = 'toolCall';
        if (piece.toolName !== undefined) block.name = piece.toolName;
        block.arguments = textField(block, 'arguments') + piece.delta;
        break;
      default:
        return;
    }
    this.#blocks.set(piece.contentIndex, block);
  }

  clear(): void {
    this.#blocks.clear();
  }

  /** The answer so far as a section, empty where nothing has come. */
  get text(): string {
    if (this.#blocks.size === 0) return '';
    const content = [...this.#blocks].sort(([one], [other]) => one - other).map(([, block]) => block);
    const last = content.pop();
    // inside the block, because a fence that is still open gets closed after it
    if (last?.type === 'text') content.push({ ...last, text: `${last.text ?? ''} ▌` });
    else if (last?.type === 'thinking') content.push({ ...last, thinking: `${last.thinking ?? ''} ▌` });
    else if (last) content.push(last, { type: 'text', text: '▌' });
    return messageMarkdown({ role: 'assistant', content });
  }
}
