/** How parts of the extension offer commands. */

import { commands, type ExtensionContext } from 'vscode';

import type { Workbench } from './workbench';

/** Offer a command; what fails in it is told the person who ran it. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- VS Code hands over what the caller gave, of any type
export type Register = (id: `piLs.${string}`, run: (...args: any[]) => unknown) => void;

/** The way to register commands that end with the extension. */
export function registrar(workbench: Workbench, context: ExtensionContext): Register {
  return (id, run) => {
    context.subscriptions.push(
      commands.registerCommand(id, (...args: unknown[]) =>
        workbench.attempt(() => Promise.resolve(run(...args))),
      ),
    );
  };
}
