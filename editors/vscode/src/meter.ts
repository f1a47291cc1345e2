/** The context meter in words: the status bar's text, its tooltip, its level, and what a screen reader says. */

import { t } from './l10n';
import { CATEGORIES, type Category, type ContextDetail, type ContextUsage } from './protocol';
import { titleOf, type Session } from './sessionModel';

export type Level = 'normal' | 'warning' | 'error';

export interface Thresholds {
  warningPercent: number;
  errorPercent: number;
}

/** A count of tokens in a few characters: 812, 9.3k, 33k, 1.2M. */
export function shortTokens(tokens: number): string {
  if (tokens < 1_000) return String(Math.round(tokens));
  for (const [unit, name] of [
    [1_000, 'k'],
    [1_000_000, 'M'],
  ] as const) {
    const value = tokens / unit;
    if (value < 9.95) return trimmed(value.toFixed(1)) + name;
    if (value < 999.5 || name === 'M') return `${Math.round(value)}${name}`;
  }
  return String(tokens);
}

/** A whole number with its thousands apart. */
export function tokens(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

const trimmed = (text: string): string => text.replace(/\.0$/, '');

/** A percentage with one digit, without rounding what is below a whole step up to it. */
export function percentText(percent: number): string {
  return `${trimmed((Math.floor(percent * 10 + 1e-9) / 10).toFixed(1))}%`;
}

const hasWindow = (usage: ContextUsage): usage is ContextUsage & { contextWindow: number } =>
  typeof usage.contextWindow === 'number' && usage.contextWindow > 0;

/** `12.3% 25k/200k (auto)`; `~` before what is estimated, `?` where nothing is known. */
export function figures(usage: ContextUsage): string {
  if (!hasWindow(usage)) return '?';
  const window = shortTokens(usage.contextWindow);
  const auto = usage.autoCompactionPaused
    ? ` (${t('auto paused')})`
    : usage.autoCompactionEnabled
      ? ` (${t('auto')})`
      : '';
  if (usage.percent == null || usage.tokens == null) return `?/${window}${auto}`;
  const about = usage.source === 'measured' || usage.source === undefined ? '' : '~';
  return `${about}${percentText(usage.percent)} ${shortTokens(usage.tokens)}/${window}${auto}`;
}

/** The status bar's text; `folder` is told where there is more than one. */
export function meterText(session: Session | undefined, folder?: string): string {
  const where = folder === undefined ? 'pi' : `pi ${folder}`;
  if (session === undefined) return `${where} –`;
  const known = `${where} ${figures(session.usage)}`;
  if (session.asking.size > 0) return `$(bell-dot) ${known} ${t('asks')}`;
  if (session.compacting !== undefined) return `$(sync~spin) ${known} ${t('compacting')}`;
  if (session.running) return `$(loading~spin) ${known}`;
  return known;
}

/** How the meter is coloured. Unknown is not alarming. */
export function levelOf(usage: ContextUsage, thresholds: Thresholds): Level {
  const percent = usage.percent ?? 0;
  if (percent >= thresholds.errorPercent) return 'error';
  return percent >= thresholds.warningPercent ? 'warning' : 'normal';
}

/** The meter for a screen reader, in whole words. */
export function spoken(session: Session | undefined): string {
  if (session === undefined) return t('pi: no session');
  const { usage } = session;
  const title = titleOf(session);
  const busy = [
    session.compacting === undefined ? '' : ` ${t('Compacting.')}`,
    session.asking.size === 0 ? '' : ` ${t('Waits for your answer.')}`,
  ].join('');
  if (!hasWindow(usage)) return t('pi: context of “{0}” unknown.', title) + busy;
  const window = tokens(usage.contextWindow);
  if (usage.percent == null || usage.tokens == null) {
    return t('pi: context of “{0}” unknown until the next answer, {1} tokens at most.', title, window) + busy;
  }
  const percent = percentText(usage.percent).replace('%', '');
  return (
    t(
      'pi: context of “{0}” {1} percent full, {2} of {3} tokens.',
      title,
      percent,
      tokens(usage.tokens),
      window,
    ) + busy
  );
}

/** How far it is to automatic compaction, in a sentence. */
export function distance(usage: ContextUsage): string {
  if (usage.autoCompactionPaused) return t('Automatic compaction pauses.');
  if (!usage.autoCompactionEnabled) return t('Automatic compaction is off.');
  if (usage.thresholdTokens === undefined) return t('Automatic compaction waits for valid settings.');
  const used = usage.tokens ?? usage.estimatedTokens ?? 0;
  const left = usage.thresholdTokens - used;
  return left > 0
    ? t('{0} tokens until automatic compaction at {1}.', tokens(left), tokens(usage.thresholdTokens))
    : t('Past the {0} tokens at which automatic compaction begins.', tokens(usage.thresholdTokens));
}

const categoryNames = (): Record<Category, string> => ({
  system: t('System prompt'),
  tools: t('Tools'),
  summary: t('Summaries'),
  user: t('Your messages'),
  assistant: t('Answers'),
  thinking: t('Thinking'),
  toolResults: t('Tool output'),
  bash: t('Shell commands'),
  custom: t('Extensions'),
  images: t('Images'),
  unattributed: t('Other'),
});

const BAR = 12;

/** A bar of blocks that says at a glance how much of `whole` a part takes. */
function bar(part: number, whole: number): string {
  const cells = whole > 0 ? Math.min(BAR, Math.max(0, Math.round((BAR * part) / whole))) : 0;
  return '█'.repeat(cells) + '░'.repeat(BAR - cells);
}

/** Problems a tooltip tells, the newest; the log has all of them. */
const MOST_PROBLEMS = 3;

/** The tooltip as Markdown; links are commands of this extension. */
export function tooltip(session: Session | undefined, detail: ContextDetail, folder: string): string {
  if (session === undefined) {
    return [
      `**pi** · ${escape(folder)}`,
      t('No session is open.'),
      `[${t('New session')}](command:piLs.newSession) · [${t('Open session')}](command:piLs.openSession)`,
    ].join('\n\n');
  }
  const { usage, state } = session;
  const parts = [`**${escape(titleOf(session))}** · ${escape(folder)}`];
  if (hasWindow(usage)) {
    parts.push(usageLine(usage), categoryTable(detail), escape(session.paused ?? distance(usage)));
  } else {
    parts.push(
      state.model === undefined
        ? t('No model is selected, so the size of the context window is not known.')
        : t('The context window of {0} is not known.', escape(`${state.model.provider}/${state.model.id}`)),
    );
  }
  const facts = [state.model && escape(`${state.model.provider}/${state.model.id}`), costText(usage.cost)];
  parts.push(facts.filter(Boolean).join(' · '));
  if (session.retry) {
    parts.push(t('Trying again: attempt {0} of {1}.', session.retry.attempt, session.retry.maxAttempts));
  }
  for (const problem of session.problems.slice(-MOST_PROBLEMS)) parts.push(`$(warning) ${escape(problem)}`);
  parts.push(links(session));
  return parts.filter((part) => part !== '').join('\n\n');
}

function usageLine(usage: ContextUsage & { contextWindow: number }): string {
  const window = tokens(usage.contextWindow);
  if (usage.percent == null || usage.tokens == null) {
    const about = usage.estimatedTokens;
    return about === undefined
      ? t('Unknown until the next answer, {0} tokens at most.', window)
      : t('Unknown until the next answer: about {0} of {1} tokens.', tokens(about), window);
  }
  const kind = {
    measured: t('measured'),
    'measured+estimate': t('measured, the newest part estimated'),
    estimate: t('estimated'),
  }[usage.source ?? 'measured'];
  const share = percentText(usage.percent);
  return `\`${bar(usage.tokens, usage.contextWindow)}\` ${t('{0} · {1} of {2} tokens, {3}', share, tokens(usage.tokens), window, kind)}`;
}

function categoryTable(detail: ContextDetail): string {
  const names = categoryNames();
  const rows = CATEGORIES.map(
    (category) => [category, Math.round(detail.categories?.[category] ?? 0)] as const,
  )
    .filter(([, count]) => count > 0)
    .sort(([, one], [, other]) => other - one);
  if (rows.length === 0) return '';
  const total = rows.reduce((sum, [, count]) => sum + count, 0);
  const lines = rows.map(
    ([category, count]) =>
      `| ${names[category]} | ${tokens(count)} | &nbsp;${percentText((100 * count) / total)} | \`${bar(count, total)}\` |`,
  );
  return [`| ${t('Context')} | ${t('Tokens')} | | |`, '|:--|--:|--:|:--|', ...lines].join('\n');
}

function costText(cost: number | undefined): string {
  return cost ? t('cost ${0}', cost.toFixed(cost < 1 ? 3 : 2)) : '';
}

function links(session: Session): string {
  const compacting = session.compacting !== undefined;
  return [
    ...(session.asking.size > 0 ? [`[$(bell-dot) ${t('Answer')}](command:piLs.answerQuestion)`] : []),
    compacting
      ? `[$(circle-slash) ${t('Cancel compaction')}](command:piLs.cancelCompaction)`
      : `[$(fold) ${t('Compact')}](command:piLs.compact) · [$(eye) ${t('Preview')}](command:piLs.previewCompaction)`,
    `[$(git-branch) ${t('Switch branch')}](command:piLs.switchBranch)`,
    `[$(book) ${t('Transcript')}](command:piLs.showTranscript)`,
  ].join(' · ');
}

/** Text of a session in Markdown: nothing in it is markup, a link or an icon. */
export function escape(text: string): string {
  return text.replace(/\s+/g, ' ').replace(/[\\`*_{}[\]()#+\-.!|<>~$&]/g, '\\$&');
}
