/**
 * A real VS Code in a real browser: code-server with the packaged extension, Chromium on it, and a scratch folder
 * with sessions that nobody else sees. One `start` takes about ten seconds; share it within a file.
 */

import { execFileSync, spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { chromium } from 'playwright-core';

const NODE = process.env.E2E_NODE24;
const ENTRY = join(process.env.E2E_CODE_SERVER ?? '', 'out/node/entry.js');
const STARTED = /HTTP server listening on (http:\/\/127\.0\.0\.1:\d+)/;

/** Settings that keep VS Code itself out of the picture. */
const QUIET = {
  'workbench.startupEditor': 'none',
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'workbench.reduceMotion': 'on',
  'chat.disableAIFeatures': true,
  'extensions.autoCheckUpdates': false,
  'extensions.autoUpdate': 'off',
  'extensions.ignoreRecommendations': true,
  'telemetry.telemetryLevel': 'off',
  'git.enabled': false,
  'window.commandCenter': false,
  'workbench.layoutControl.enabled': false,
};

export const SHOTS = 'dist/shots';
export const VSIX = 'dist/pi-ls.vsix';
/** The server of this checkout. */
export const SERVER = [process.env.E2E_PYTHON, '-m', 'pi_ls'];

const running = new Set();
process.once('exit', () => {
  for (const child of running) child.kill('SIGTERM'); // a test that crashed leaves nothing behind
});

/**
 * Start VS Code. `prepare({ root, folder })` may write files and returns what differs from the defaults:
 * `env`, `user` and `machine` settings, `open` (a query such as { workspace: path }).
 */
export async function start({ prepare = () => ({}), vsix = VSIX, trusted = true, flags = [], payload } = {}) {
  const root = mkdtempSync(join(tmpdir(), 'pi-ls-e2e-'));
  const folder = join(root, 'meterlog');
  const data = join(root, 'data');
  for (const path of [folder, join(root, 'home'), join(root, 'extensions')]) mkdirSync(path);
  const { env = {}, user = {}, machine = {}, open = { folder } } = prepare({ root, folder });
  put(join(data, 'User/settings.json'), { ...QUIET, ...user });
  // Settings of the machine count from this file only: the window is a remote one.
  put(join(data, 'Machine/settings.json'), { 'piLs.server.command': SERVER, ...machine });
  const environment = { ...cleanEnvironment(), HOME: join(root, 'home'), EXTENSIONS_GALLERY: '{}', ...env };
  const places = ['--user-data-dir', data, '--extensions-dir', join(root, 'extensions')];
  if (vsix) {
    execFileSync(NODE, [ENTRY, ...places, '--install-extension', vsix], { env: environment, stdio: 'pipe' });
  }
  const quiet = [
    '--auth',
    'none',
    '--bind-addr',
    '127.0.0.1:0',
    '--disable-telemetry',
    '--disable-update-check',
  ];
  const trust = trusted ? ['--disable-workspace-trust'] : [];
  const server = spawn(NODE, [ENTRY, ...places, ...quiet, ...trust, ...flags], {
    env: environment,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(server);
  let log = '';
  const url = await new Promise((resolve, reject) => {
    const take = (chunk) => {
      log += chunk;
      const match = STARTED.exec(log);
      if (match) resolve(match[1]);
    };
    server.stdout.on('data', take);
    server.stderr.on('data', take);
    server.once('exit', (code) => {
      running.delete(server);
      reject(new Error(`code-server ended with ${code}\n${log}`));
    });
  });
  const browser = await launch();
  const external = [];
  const query = new URLSearchParams(open);
  if (payload) query.set('payload', JSON.stringify(payload(new URL(url).host)));

  /** One more window on the same VS Code. */
  async function newWindow() {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    page.setDefaultTimeout(30_000); // machines that test are busy machines
    page.on('request', (request) => {
      const { protocol, hostname } = new URL(request.url());
      const leaves = /^(http|ws)s?:$/.test(protocol) && hostname !== '127.0.0.1' && !INSIDE.test(hostname);
      if (leaves) external.push(request.url());
    });
    return new Window(page, `${url}/?${query}`);
  }

  const first = await newWindow();
  return {
    root,
    folder,
    data,
    /** Addresses outside this machine that a window asked for. */
    external,
    window: first,
    page: first.page,
    newWindow,
    /** What went wrong, for somebody who looks at a failed run. */
    keepLogs(name) {
      put(join(SHOTS, `${name}.log`), log);
      if (existsSync(join(data, 'logs')))
        cpSync(join(data, 'logs'), join(SHOTS, `${name}-logs`), { recursive: true });
    },
    /** The process ids of the servers that work in its folder. */
    servers() {
      return readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .map(Number)
        .filter((pid) => {
          try {
            const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
            return words.includes('pi_ls') && readlinkSync(`/proc/${pid}/cwd`) === folder;
          } catch {
            return false;
          }
        });
    },
    /** Change a setting of the machine while VS Code runs. */
    setMachine(settings) {
      put(join(data, 'Machine/settings.json'), { 'piLs.server.command': SERVER, ...machine, ...settings });
    },
    async stop() {
      await browser.close();
      if (running.has(server)) {
        const gone = new Promise((resolve) => server.once('exit', resolve));
        server.kill('SIGTERM');
        await gone;
      }
      rmSync(root, { recursive: true, force: true, maxRetries: 30, retryDelay: 200 });
    },
  };
}

/** What a person sees and does in one window. */
export class Window {
  constructor(page, address) {
    this.page = page;
    this.address = address;
  }

  open() {
    return this.page.goto(this.address);
  }

  /** The meter in the status bar, where it shows that text. */
  meter(text = '') {
    return this.page.locator('.statusbar-item[id="pi-ls.pi-ls.piLs.meter"]').filter({ hasText: text });
  }

  /** A notification with that text. */
  toast(text) {
    return this.page.locator('.notification-toast').filter({ hasText: text });
  }

  button(text, name) {
    return this.toast(text).getByRole('button', { name, exact: true });
  }

  /** Close a notification without answering it. */
  async dismiss(text) {
    await this.toast(text).hover();
    await this.toast(text).locator('.codicon-notifications-clear').click();
    await this.toast(text).waitFor({ state: 'detached' });
  }

  async dismissAll() {
    await this.page.keyboard.press('Escape');
    await this.run('Notifications: Clear All Notifications');
  }

  /** A line of a text editor. */
  line(text) {
    return this.page.locator('.editor-instance .view-line').filter({ hasText: text }).first();
  }

  get input() {
    return this.page.locator('.quick-input-widget:visible input.input');
  }

  /** A row of a quick pick, by its whole label. */
  option(label) {
    const exact = new RegExp(`^\\s*${label.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}\\s*$`);
    const name = this.page.locator('.label-name').filter({ hasText: exact });
    return this.page.locator('.quick-input-list').getByRole('option').filter({ has: name }).first();
  }

  row(name) {
    return this.page.getByRole('treeitem', { name }).first();
  }

  /** Choose from a row's menu. A click on a menu that has only just opened goes nowhere, so it may take two. */
  async menu(row, name) {
    const item = this.page.getByRole('menuitem', { name, exact: true });
    for (let tries = 0; tries < 3 && !(await this.input.isVisible()); tries++) {
      await row.click({ button: 'right' });
      await item.waitFor();
      await item.hover();
      await item.click();
      await this.input.waitFor({ timeout: 2_000 }).catch(() => this.page.keyboard.press('Escape'));
    }
  }

  /** Run a command by its whole name in the palette. */
  async run(label) {
    await this.#find(label);
    await this.option(label).click();
  }

  /** How often the palette offers a command. */
  async timesOffered(label) {
    await this.#find(label);
    const labels = await this.page.locator('.quick-input-list .label-name').allTextContents();
    await this.page.keyboard.press('Escape');
    return labels.filter((text) => text.trim() === label).length;
  }

  /**
   * Find a command in the palette. One that opens while another closes, or a session opens, is opened again. What
   * matches arrives in pieces, and a row may be another command's a moment later: the list must have come to rest.
   */
  async #find(label) {
    for (let tries = 1; ; tries++) {
      await this.page.keyboard.press('F1');
      try {
        await this.input.fill(`>${label}`, { timeout: 3_000 });
        await this.option(label).waitFor({ timeout: 3_000 });
        for (let before = null, now = ''; now !== before;) {
          before = now;
          await this.page.waitForTimeout(150);
          now = await this.page.locator('.quick-input-list').innerText({ timeout: 3_000 });
        }
        await this.option(label).waitFor({ timeout: 3_000 });
        return;
      } catch (error) {
        if (tries === 8) throw error;
        await this.page.keyboard.press('Escape');
      }
    }
  }

  async showPiViews() {
    const tab = this.page.locator('.activitybar').getByRole('tab', { name: 'Pi', exact: true });
    if ((await tab.getAttribute('aria-selected')) !== 'true') await tab.click();
  }

  shot(name) {
    mkdirSync(SHOTS, { recursive: true });
    return this.page.screenshot({ path: join(SHOTS, `${name}.png`) });
  }
}

function launch() {
  return chromium.launch({
    executablePath: process.env.E2E_CHROMIUM,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
  });
}

/** What a webview loads: VS Code answers it inside the browser. */
const INSIDE = /^vscode-remote\+127-.*\.vscode-resource\.vscode-cdn\.net$/;

const FOREIGN = /^(XDG_|VSCODE_|CODE_SERVER|PI_|PORT$|PASSWORD$)|_API_KEY$/;

function cleanEnvironment() {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !FOREIGN.test(name)));
}

/** Write a file, a value as JSON. */
export function put(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content, null, 2));
}
