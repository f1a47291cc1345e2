/**
 * Which program serves: the configured one, else `pi-ls` of the selected Python, else `pi-ls` on PATH, else uv
 * with the wheel this extension carries. No editor in here.
 *
 * Never a package of that name from a registry: `pi-ls` is run from there by nobody but its user.
 */

import { access, constants, readdir } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';

export interface Program {
  readonly command: string;
  readonly args: string[];
  readonly origin: 'setting' | 'python' | 'path' | 'uvx';
}

export interface Places {
  /** The setting `piLs.server.command`, empty where it is not set. */
  configured: readonly string[];
  /** The selected Python interpreter; absent where there is none, or the workspace is not trusted. */
  python?: string | undefined;
  /** The environment's PATH. */
  path: string | undefined;
  /** The folder with the wheel. */
  bundled: string;
  platform: NodeJS.Platform;
}

/** The program to start, or undefined where none was found. */
export async function findServer(places: Places): Promise<Program | undefined> {
  const [command, ...args] = places.configured;
  if (command !== undefined && command !== '') return { command, args, origin: 'setting' };
  const windows = places.platform === 'win32';
  const name = windows ? 'pi-ls.exe' : 'pi-ls';
  if (places.python !== undefined) {
    const beside = join(dirname(places.python), name);
    if (await isExecutable(beside)) return { command: beside, args: [], origin: 'python' };
  }
  const directories = (places.path ?? '').split(delimiter).filter((directory) => directory !== '');
  const onPath = await firstExecutable(directories, name);
  if (onPath !== undefined) return { command: onPath, args: [], origin: 'path' };
  const [uvx, wheel] = await Promise.all([
    firstExecutable(directories, windows ? 'uvx.exe' : 'uvx'),
    bundledWheel(places.bundled),
  ]);
  if (uvx === undefined || wheel === undefined) return undefined;
  return { command: uvx, args: ['--from', wheel, 'pi-ls'], origin: 'uvx' };
}

async function firstExecutable(directories: readonly string[], name: string): Promise<string | undefined> {
  for (const directory of directories) {
    const path = join(directory, name);
    if (await isExecutable(path)) return path;
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function bundledWheel(folder: string): Promise<string | undefined> {
  try {
    const wheel = (await readdir(folder)).find((name) => name.endsWith('.whl'));
    return wheel === undefined ? undefined : join(folder, wheel);
  } catch {
    return undefined;
  }
}
