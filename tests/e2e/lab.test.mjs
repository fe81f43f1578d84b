// JupyterLab in a headless browser, served by reitosd: what a person does with a notebook.
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { menu as chooseMenu, notebook, openNotebook, pictures, startBrowser, takePicture }
  from './browser.mjs';
import { Daemon, repo, until } from './daemon.mjs';

const daemon = new Daemon();
let browser;
let page;

function saved(name) {
  return JSON.parse(readFileSync(join(daemon.root, name), 'utf8'));
}

function text(cell) {
  return cell.outputs.map(o => [o.text ?? ''].flat().join('')).join('');
}

const open = name => openNotebook(page, daemon, name);
const menu = (top, item) => chooseMenu(page, top, item);

// dialogs that would mean that something went wrong
async function noDialog() {
  const dialog = page.locator('.jp-Dialog');
  if (await dialog.count()) assert.fail(`a dialog: ${await dialog.first().innerText()}`);
}

before(async () => {
  await daemon.start();
  browser = await startBrowser(daemon);
  page = browser.page;
});

afterEach(context => takePicture(page, context));

after(async () => {
  await browser?.close();
  await daemon.stop();
});

test('without the token there is a login form', async () => {
  const reply = await fetch(`${daemon.url}lab`, { redirect: 'manual' });
  assert.equal(reply.status, 302);
  assert.match(reply.headers.get('location'), /login/);
  assert.match(await (await fetch(`${daemon.url}login`)).text(), /<form/);
});

test('the digits notebook runs to its end, with plots', async () => {
  copyFileSync(join(repo, 'examples', 'digits.ipynb'), join(daemon.root, 'digits.ipynb'));
  const cells = saved('digits.ipynb').cells.filter(c => c.cell_type === 'code');
  await open('digits.ipynb');
  await menu('Run', 'Run All Cells');
  await until('all cells have a number', async () => {
    await noDialog();
    const { content } = await daemon.api('GET', 'api/contents/digits.ipynb?content=1');
    const code = content.cells.filter(c => c.cell_type === 'code');
    return code.length === cells.length && code.every(c => c.execution_count);
  }, 120);
  await page.locator('.jp-OutputArea-output img').first().waitFor({ timeout: 30000 });
  const image = page.locator('.jp-OutputArea-output img').first();
  await image.scrollIntoViewIfNeeded();
  assert.ok(await image.evaluate(i => i.complete && i.naturalWidth > 100));
  assert.equal(await page.locator('.jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]')
    .count(), 0);
  await page.screenshot({ path: join(pictures, 'digits.png') });
});

test('save writes the outputs; rename keeps kernel and content', async () => {
  await page.locator('.jp-Notebook').first().click();
  await menu('File', /^Save Notebook$/);
  await until('saved', () => saved('digits.ipynb').cells.some(c =>
    (c.outputs ?? []).some(o => o.data?.['image/png'])));
  await noDialog();
  await menu('File', 'Rename Notebook');
  await page.locator('.jp-Dialog input').fill('renamed.ipynb');
  await page.locator('.jp-Dialog .jp-mod-accept').click();
  await until('renamed', () => existsSync(join(daemon.root, 'renamed.ipynb')) &&
    !existsSync(join(daemon.root, 'digits.ipynb')));
  await until('the session follows', async () =>
    (await daemon.api('GET', 'api/sessions')).some(s => s.path === 'renamed.ipynb'));
  await noDialog();
});

test('a reload in mid-run loses nothing, in the file and in the page', async () => {
  const lines = [...Array(12).keys()].map(i => `line ${i}\n`).join('');
  writeFileSync(join(daemon.root, 'reload.ipynb'), notebook(
    'import time\nfor i in range(12):\n    print("line", i, flush=True)\n    time.sleep(0.5)',
    'print("after")'));
  await open('reload.ipynb');
  await menu('Run', 'Run All Cells');
  await page.getByText('line 2').first().waitFor({ timeout: 30000 });
  await page.reload();
  await page.locator('.jp-Notebook .jp-Cell').first().waitFor({ timeout: 60000 });
  await until('all output is in the notebook', async () => {
    const { content } = await daemon.api('GET', 'api/contents/reload.ipynb?content=1');
    return text(content.cells[0]) === lines && text(content.cells[1]) === 'after\n';
  }, 60);
  assert.equal(text(saved('reload.ipynb').cells[0]), lines);
  await noDialog();
  // the page itself catches up
  await page.getByText('line 11').first().waitFor({ timeout: 30000 });
  // and so it is after another reload
  await open('reload.ipynb');
  const shown = await page.locator('.jp-Cell').first().locator('.jp-OutputArea-output')
    .allInnerTexts();
  assert.equal(shown.join('\n').replace(/\s+/g, ' ').trim(), lines.replace(/\s+/g, ' ').trim());
  await page.screenshot({ path: join(pictures, 'reload.png') });
});

test('reload, edit another cell, save: no "File changed", and no output is lost', async () => {
  writeFileSync(join(daemon.root, 'edit.ipynb'), notebook(
    'import time\nfor i in range(10):\n    print("row", i, flush=True)\n    time.sleep(0.5)', '2'));
  await open('edit.ipynb');
  await menu('Run', 'Run All Cells');
  await page.getByText('row 1').first().waitFor({ timeout: 30000 });
  await page.reload();
  await page.locator('.jp-Notebook .jp-Cell').nth(1).waitFor({ timeout: 60000 });
  await page.locator('.jp-Cell').nth(1).locator('.cm-content').click();
  await page.keyboard.type(' + 40');
  await menu('File', /^Save Notebook$/);
  await until('the edit is saved', () =>
    [saved('edit.ipynb').cells[1].source].flat().join('').includes('40'));
  await page.getByText('row 9').first().waitFor({ timeout: 30000 });
  await menu('File', /^Save Notebook$/);
  await until('the output is complete', () => text(saved('edit.ipynb').cells[0]) ===
    [...Array(10).keys()].map(i => `row ${i}\n`).join(''));
  await noDialog();
});

test('a terminal opens and runs a command', async () => {
  await menu('File', 'New');
  await page.locator('.lm-Menu-item', { has: page.locator('.lm-Menu-itemLabel',
    { hasText: /^Terminal$/ }) }).last().click();
  await page.locator('.jp-Terminal .xterm-helper-textarea').waitFor({ state: 'attached',
    timeout: 30000 });
  await page.locator('.jp-Terminal').click();
  await page.keyboard.type('echo made > from-terminal.txt\n');
  await until('the command ran', () => existsSync(join(daemon.root, 'from-terminal.txt')));
});

test('no script error in the page', () => {
  assert.deepEqual(browser.errors, []);
});
