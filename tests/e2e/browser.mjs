// JupyterLab in headless Chromium: what the browser tests share.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

import { repo } from './daemon.mjs';

export const pictures = join(repo, 'build', 'e2e');

const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
  .find(existsSync);

/** A browser of its own, logged in. `errors` collects the script errors of its page. */
export async function startBrowser(daemon) {
  assert.ok(browserPath, 'chromium is installed');
  mkdirSync(pictures, { recursive: true });
  const profile = mkdtempSync(join(tmpdir(), 'reitos-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: browserPath, headless: true, viewport: { width: 1280, height: 900 },
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync']
  });
  const page = context.pages()[0] ?? await context.newPage();
  const errors = [];
  page.on('pageerror', error => errors.push(String(error)));
  page.on('dialog', dialog => dialog.accept());
  await page.goto(`${daemon.url}lab?token=${daemon.token}`);
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached', timeout: 60000 });
  return {
    page,
    errors,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    }
  };
}

/** A picture of the page after each test, named after it. */
export async function takePicture(page, testContext) {
  const name = testContext.name.replace(/\W+/g, '-').slice(0, 40);
  await page?.screenshot({ path: join(pictures, `${name}.png`) }).catch(() => undefined);
}

/** The text of a notebook with these code cells, ids cell-0, cell-1... */
export function notebook(...sources) {
  return JSON.stringify({
    cells: sources.map((source, i) => ({ cell_type: 'code', id: `cell-${i}`, source, metadata: {},
      outputs: [], execution_count: null })),
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
    nbformat: 4, nbformat_minor: 5
  });
}

/** Opens it in a workspace of its own, so that no tab of an earlier test is restored. */
export async function openNotebook(page, daemon, name) {
  await page.goto(`${daemon.url}lab/workspaces/${name.split('.')[0]}/tree/${name}`);
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached', timeout: 60000 });
  await page.locator('.jp-Notebook .jp-Cell').first().waitFor({ timeout: 60000 });
  await page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').first()
    .waitFor({ timeout: 60000 });
}

/** Chooses an entry of the menu bar. */
export async function menu(page, top, item) {
  await page.locator('.lm-MenuBar-item', { hasText: new RegExp(`^${top}$`) }).click();
  await page.locator('.lm-Menu-item', { has: page.locator('.lm-Menu-itemLabel',
    { hasText: item }) }).first().click();
}

export const runAll = page => menu(page, 'Run', 'Run All Cells');
