/** Run by the extension host: all tests of this folder, with a report the starter reads. */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import Mocha from 'mocha';

export async function run(): Promise<void> {
  const output = process.env['PI_LS_TEST_REPORT'] ?? '';
  const mocha = new Mocha({ ui: 'tdd', timeout: 60_000, reporter: 'json', reporterOptions: { output } });
  for (const file of readdirSync(__dirname)) {
    if (file.endsWith('.test.js')) mocha.addFile(join(__dirname, file));
  }
  const failures = await new Promise<number>((resolve) => mocha.run(resolve));
  if (failures > 0) throw new Error(`${failures} failed`);
}
