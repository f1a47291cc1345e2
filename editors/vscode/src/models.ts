/** Choosing the model and how hard it thinks. */

import { window, type QuickPickItem } from 'vscode';

import type { Register } from './commands';
import { t } from './l10n';
import { shortTokens } from './meter';
import { COMMANDS, THINKING_LEVELS, type Model } from './protocol';
import type { Workbench } from './workbench';

export function registerModels(workbench: Workbench, register: Register): void {
  register('piLs.selectModel', () => selectModel(workbench));
  register('piLs.selectThinkingLevel', () => selectThinkingLevel(workbench));
}

async function selectModel(workbench: Workbench): Promise<void> {
  const { models } = await workbench.ask(COMMANDS.listModels, {});
  const current = workbench.session?.state.model;
  const isCurrent = (model: Model): boolean =>
    model.provider === current?.provider && model.id === current.id;
  const items = models
    .map((model): QuickPickItem & { model: Model } => ({
      label: `${model.provider}/${model.id}`,
      description: [
        isCurrent(model) ? t('used now') : '',
        model.contextWindow ? t('{0} tokens', shortTokens(model.contextWindow)) : '',
        model.available ? '' : t('no credentials'),
      ]
        .filter(Boolean)
        .join(' · '),
      model,
    }))
    .sort((one, other) => rank(other.model) - rank(one.model));
  function rank(model: Model): number {
    return (isCurrent(model) ? 2 : 0) + (model.available ? 1 : 0);
  }
  const chosen = await window.showQuickPick(items, {
    placeHolder: t('Which model?'),
    matchOnDescription: true,
  });
  if (chosen === undefined) return;
  const { provider, id } = chosen.model;
  const state = await workbench.ask(COMMANDS.setModel, { provider, modelId: id });
  workbench.model.told(workbench.folder?.workspace ?? '', state);
}

async function selectThinkingLevel(workbench: Workbench): Promise<void> {
  const current = workbench.session?.state.thinkingLevel;
  const items = THINKING_LEVELS.map((level) => ({
    label: level,
    ...(level === current ? { description: t('used now') } : {}),
    level,
  }));
  const chosen = await window.showQuickPick(items, { placeHolder: t('How hard should the model think?') });
  if (chosen === undefined) return;
  const state = await workbench.ask(COMMANDS.setThinkingLevel, { level: chosen.level });
  workbench.model.told(workbench.folder?.workspace ?? '', state);
}
