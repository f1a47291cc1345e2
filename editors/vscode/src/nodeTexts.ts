/** How a node of the session's tree is called, and which icon it has. No editor in here. */

import { t } from './l10n';
import type { TreeNode } from './protocol';

/** Who spoke, or what the entry is, in one or two words. */
export function kindName(node: Pick<TreeNode, 'type' | 'role'>): string {
  switch (node.type) {
    case 'message':
      return roleName(node.role);
    case 'compaction':
      return t('Compaction');
    case 'branch_summary':
      return t('Branch summary');
    case 'custom_message':
      return t('Extension');
    case 'label':
      return t('Label');
    case 'session_info':
      return t('Session name');
    case 'model_change':
      return t('Model');
    case 'thinking_level_change':
      return t('Thinking level');
    default:
      return node.type;
  }
}

function roleName(role: string | undefined): string {
  switch (role) {
    case 'user':
      return t('You');
    case 'assistant':
      return t('Assistant');
    case 'toolResult':
      return t('Tool');
    case 'bashExecution':
      return t('Shell');
    case 'system':
      return t('System');
    default:
      return role ?? t('Message');
  }
}

/** The name of the codicon that stands for the entry. */
export function iconOf(node: Pick<TreeNode, 'type' | 'role'>): string {
  switch (node.type) {
    case 'message':
      switch (node.role) {
        case 'user':
          return 'account';
        case 'assistant':
          return 'sparkle';
        case 'toolResult':
          return 'tools';
        case 'bashExecution':
          return 'terminal';
        default:
          return 'comment';
      }
    case 'compaction':
      return 'fold';
    case 'branch_summary':
      return 'git-merge';
    case 'custom_message':
      return 'extensions';
    case 'label':
      return 'tag';
    case 'model_change':
      return 'chip';
    case 'session_info':
      return 'edit';
    default:
      return 'gear';
  }
}

/** A time as people say it: "3 min", "2 h", "5 d", then the date. */
export function ago(millis: number, now: number): string {
  const minutes = Math.max(0, Math.round((now - millis) / 60_000));
  if (minutes < 1) return t('now');
  if (minutes < 60) return t('{0} min', minutes);
  if (minutes < 48 * 60) return t('{0} h', Math.round(minutes / 60));
  if (minutes < 14 * 24 * 60) return t('{0} d', Math.round(minutes / 1_440));
  return new Date(millis).toISOString().slice(0, 10);
}
