/** Pictures of what there is to see, in a light and a dark theme; some of them are in the README. */

import { after, before, test } from 'node:test';

import { start } from './harness.mjs';
import { agentFolder, eventually, startProvider, writeSettings } from './pi.mjs';

const THEMES = { light: 'Default Light Modern', dark: 'Default Dark Modern' };
let provider;

before(async () => {
  provider = await startProvider();
});
after(() => provider?.stop());

for (const [name, theme] of Object.entries(THEMES)) {
  test(`pictures in a ${name} theme`, { timeout: 240_000 }, async () => {
    let agent;
    const code = await start({
      prepare({ root, folder }) {
        agent = agentFolder(root, folder, { provider: provider.openai });
        return { env: { PI_CODING_AGENT_DIR: agent }, user: { 'workbench.colorTheme': theme } };
      },
    });
    const w = code.window;
    try {
      await w.open();
      await w.meter('pi 73.5%').waitFor({ timeout: 60_000 });
      await w.showPiViews();
      await w.row(/current entry/).waitFor();
      await w.shot(`tree-${name}`);
      const tooltip = w.page.locator('.monaco-hover:visible');
      await eventually('the categories', async () => {
        await w.page.mouse.move(600, 300);
        await w.meter().hover();
        await tooltip.waitFor();
        return (await tooltip.innerText()).includes('Tool output');
      });
      await w.shot(`tooltip-${name}`);
      await w.page.mouse.move(600, 300);
      await w.meter().click();
      await w.option('Preview compaction').waitFor();
      await w.shot(`menu-${name}`);
      await w.page.keyboard.press('Escape');
      await w.run('Pi: Switch Branch…');
      await w.option('you are here').or(w.page.getByText('you are here')).first().waitFor();
      await w.shot(`switch-${name}`);
      await w.page.keyboard.press('Escape');
      await w.run('Pi: Preview Compaction');
      const preview = w.page.frameLocator('iframe.webview.ready').frameLocator('iframe#active-frame');
      await preview.getByText('The first entry that is kept:').waitFor();
      await w.toast('compact 30,120 tokens').waitFor();
      await w.shot(`preview-${name}`);
      await w.dismissAll();
      writeSettings(agent, ['workstation/qwen3-coder-30b']);
      await provider.queue({ hang: true });
      await w.run('Pi: Compact');
      await w.toast(/Summari[sz]ing/).waitFor({ timeout: 120_000 }); // a large library is loaded first
      await w.shot(`progress-${name}`);
    } finally {
      await code.stop();
    }
  });
}
