/** The preview of a compaction, and its summary, as Markdown. No editor in here. */

import { t } from './l10n';
import { escape, percentText, tokens } from './meter';
import type { CompactionPreview, CompactionResult } from './protocol';

/** How many entries at either end of a list are shown with their text. */
export const SHOWN = 5;

/** The ids whose texts a preview shows. */
export function idsToShow(preview: CompactionPreview): string[] {
  const lists = [preview.summarizedEntryIds, preview.turnPrefixEntryIds, preview.keptEntryIds];
  return lists.flatMap((ids) => {
    const { head, tail } = ends(ids ?? []);
    return [...head, ...tail];
  });
}

function ends(ids: readonly string[]): { head: readonly string[]; tail: readonly string[]; between: number } {
  if (ids.length <= 2 * SHOWN) return { head: ids, tail: [], between: 0 };
  return { head: ids.slice(0, SHOWN), tail: ids.slice(-SHOWN), between: ids.length - 2 * SHOWN };
}

/** What is shown of one entry. */
export interface Shown {
  who: string;
  text: string;
  tokens: number;
}

/** The whole preview; `window` is the model's context window where one is known. */
export function previewMarkdown(
  title: string,
  preview: CompactionPreview,
  entries: ReadonlyMap<string, Shown>,
  window?: number,
): string {
  const heading = `# ${t('What compaction would do')}\n\n${escape(title)}`;
  if (!preview.possible) return `${heading}\n\n**${escape(preview.reason ?? t('Nothing to compact.'))}**\n`;
  const summarized = preview.summarizedEntryIds ?? [];
  const prefix = preview.turnPrefixEntryIds ?? [];
  const kept = preview.keptEntryIds ?? [];
  const parts = [heading, sizes(preview, window), cut(preview, entries)];
  parts.push(`## ${t('Summarized: {0} entries', summarized.length)}`, listing(summarized, entries));
  if (preview.isSplitTurn) {
    parts.push(
      `## ${t('Summarized as the beginning of the turn that is cut: {0} entries', prefix.length)}`,
      listing(prefix, entries),
    );
  }
  parts.push(`## ${t('Kept as they are: {0} entries', kept.length)}`, listing(kept, entries));
  if (preview.previousSummary) parts.push(t('The previous summary is carried on in the new one.'));
  parts.push(
    files(t('Files that were changed'), preview.modifiedFiles),
    files(t('Files that were read'), preview.readFiles),
  );
  parts.push(prompts(preview));
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

function cut(preview: CompactionPreview, entries: ReadonlyMap<string, Shown>): string {
  const where = preview.isSplitTurn ? t('It falls inside a turn.') : t('It falls between two turns.');
  const first = entries.get(preview.firstKeptEntryId ?? '');
  const kept = first && `> **${escape(first.who)}** ${escape(first.text)}`;
  return [
    `## ✂ ${t('The cut')}`,
    `${where} ${t('The first entry that is kept:')}`,
    kept ?? `\`${preview.firstKeptEntryId ?? ''}\``,
  ].join('\n\n');
}

function sizes(preview: CompactionPreview, window: number | undefined): string {
  const row = (name: string, count: number | undefined): string =>
    `| ${name} | ${count === undefined ? '?' : tokens(count)} | ${
      window && count !== undefined ? percentText((100 * count) / window) : ''
    } |`;
  return [
    `| | ${t('Tokens')} | ${window ? t('of {0}', tokens(window)) : ''} |`,
    '|:--|--:|--:|',
    row(t('Now'), preview.tokensBefore),
    row(t('Afterwards, about'), preview.estimatedTokensAfter),
  ].join('\n');
}

function listing(ids: readonly string[], entries: ReadonlyMap<string, Shown>): string {
  if (ids.length === 0) return `*${t('none')}*`;
  const { head, tail, between } = ends(ids);
  const row = (id: string): string => {
    const entry = entries.get(id);
    return entry === undefined
      ? `| | \`${id}\` | |`
      : `| ${escape(entry.who)} | ${escape(entry.text)} | ${tokens(entry.tokens)} |`;
  };
  return [
    `| | ${t('Text')} | ${t('Tokens')} |`,
    '|:--|:--|--:|',
    ...head.map(row),
    ...(between > 0 ? [`| | *${t('{0} more', between)}* | |`] : []),
    ...tail.map(row),
  ].join('\n');
}

const files = (name: string, paths: readonly string[] | undefined): string =>
  paths?.length ? `## ${name}\n\n${paths.map((path) => `- \`${path.replaceAll('`', '')}\``).join('\n')}` : '';

function prompts(preview: CompactionPreview): string {
  if (!preview.prompts?.length) return '';
  const rows = preview.prompts.map(({ name, tokens: count }) => `| \`${name}\` | ${tokens(count)} |`);
  return [
    `## ${t('Prompts that would be sent')}\n`,
    `| ${t('Prompt')} | ${t('Tokens')} |`,
    '|:--|--:|',
    ...rows,
  ].join('\n');
}

/** `33k → 9.3k`, in whole words for a notification. */
export function outcome(result: CompactionResult): string {
  return t('Compacted: {0} → {1} tokens.', tokens(result.tokensBefore), tokens(result.estimatedTokensAfter));
}
