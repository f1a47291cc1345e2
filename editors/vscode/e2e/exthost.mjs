/** Runs test/host inside the extension host of a real VS Code, with the installed package; exits 1 on a failure. */

import { readFileSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';

import { put, start } from './harness.mjs';
import { agentFolder } from './pi.mjs';

const report = resolve('dist/host-report.json');
rmSync(report, { force: true });
// The tests are an extension under development of their own, so that what is tested is the package as installed.
const runner = resolve('dist/runner');
put(`${runner}/package.json`, {
  name: 'runner',
  publisher: 'test',
  version: '0.0.0',
  engines: { vscode: '*' },
});

const code = await start({
  prepare: ({ root, folder }) => ({
    env: { PI_CODING_AGENT_DIR: agentFolder(root, folder), PI_LS_TEST_REPORT: report },
  }),
  flags: ['--vscode-option', 'enable-smoke-test-driver'], // without it the payload is passed over in silence
  payload: (host) => [
    ['extensionDevelopmentPath', `vscode-remote://${host}${runner}`],
    ['extensionTestsPath', `vscode-remote://${host}${resolve('dist/host/index')}`],
  ],
});
let exit;
try {
  exit = await new Promise((done, fail) => {
    setTimeout(() => fail(new Error('the tests gave no result in 240 s')), 240_000).unref();
    code.page
      .exposeFunction('codeAutomationLog', () => {})
      .then(() => code.page.exposeFunction('codeAutomationExit', done))
      .then(() => code.window.open())
      .catch(fail);
  });
} catch (error) {
  code.keepLogs('exthost');
  throw error;
} finally {
  await code.stop();
}
const { stats, tests, failures } = JSON.parse(readFileSync(report, 'utf8'));
for (const test of tests) {
  const failure = failures.find(({ fullTitle }) => fullTitle === test.fullTitle);
  console.log(failure ? `✖ ${test.title}: ${failure.err.message}` : `✔ ${test.title} (${test.duration}ms)`);
}
console.log(`${stats.passes} passed, ${stats.failures} failed`);
process.exit(exit || stats.failures || !stats.passes ? 1 : 0);
