/** The settings `piLs.*`, each read in one place. */

import { workspace } from 'vscode';

import type { Thresholds } from './meter';
import { commandLine, fitting } from './settingValues';

export const SECTION = 'piLs';

export type SummaryChoice = 'ask' | 'none' | 'summarize';

const read = (key: string): unknown => workspace.getConfiguration(SECTION).get(key);

export const serverCommand = (): string[] => commandLine(read('server.command'));
export const agentDir = (): string => fitting(read('agentDir'), '');
export const sessionDir = (): string => fitting(read('sessionDir'), '');
export const defaultModel = (): string => fitting(read('model'), '');
export const autoOpen = (): string => fitting(read('autoOpen'), 'latest', ['latest', 'none']);
export const tokenEstimator = (): string =>
  fitting(read('tokenEstimator'), 'tiktoken', ['tiktoken', 'chars']);
export const serverSettings = (): Record<string, unknown> => fitting(read('settings'), {});
export const summaryChoice = (): SummaryChoice =>
  fitting<SummaryChoice>(read('navigation.summary'), 'ask', ['ask', 'none', 'summarize']);

/** Where the meter turns to a warning and to an error. */
export const thresholds = (): Thresholds => ({
  warningPercent: fitting(read('meter.warningPercent'), 70),
  errorPercent: fitting(read('meter.errorPercent'), 90),
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
