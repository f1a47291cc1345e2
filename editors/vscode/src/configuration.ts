/** The settings `piLs.*`, each read in one place. */

import { workspace } from 'vscode';

import type { Thresholds } from './meter';

export const SECTION = 'piLs';

export type SummaryChoice = 'ask' | 'none' | 'summarize';

function read<T>(key: string, fallback: T): T {
  return workspace.getConfiguration(SECTION).get<T>(key, fallback);
}

export const serverCommand = (): string[] => read<string[]>('server.command', []);
export const agentDir = (): string => read('agentDir', '');
export const sessionDir = (): string => read('sessionDir', '');
export const defaultModel = (): string => read('model', '');
export const autoOpen = (): string => read('autoOpen', 'latest');
export const tokenEstimator = (): string => read('tokenEstimator', 'tiktoken');
export const serverSettings = (): Record<string, unknown> => read('settings', {});
export const summaryChoice = (): SummaryChoice => read<SummaryChoice>('navigation.summary', 'ask');

/** Where the meter turns to a warning and to an error. */
export const thresholds = (): Thresholds => ({
  warningPercent: read('meter.warningPercent', 70),
  errorPercent: read('meter.errorPercent', 90),
});

/** Settings the server reads once, when it starts. */
export const NEEDS_RESTART = [
  'server.command',
  'agentDir',
  'sessionDir',
  'model',
  'autoOpen',
  'tokenEstimator',
].map((key) => `${SECTION}.${key}`);
