// Widgets, the debugger and input() in JupyterLab: what needs comms, binary buffers and stdin.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { Daemon } from './daemon.mjs';
import { notebook, openNotebook, runAll, startBrowser, takePicture } from './browser.mjs';

const daemon = new Daemon();
let browser;
let page;

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

async function run(name, ...sources) {
  writeFileSync(join(daemon.root, name), notebook(...sources));
  await openNotebook(page, daemon, name);
  await runAll(page);
}

test('a slider talks with the kernel in both directions', async () => {
  await run('slider.ipynb', [
    'import ipywidgets as w',
    's = w.IntSlider(value=7, max=10); out = w.Label("none")',
    's.observe(lambda c: setattr(out, "value", f"kernel saw {c.new}"), "value")',
    'display(s, out)'
  ].join('\n'));
  const readout = page.locator('.widget-readout').first();
  await readout.waitFor({ timeout: 60000 });
  assert.equal(await readout.innerText(), '7');
  await readout.click();
  await page.keyboard.press('Control+a');
  await page.keyboard.type('3');
  await page.keyboard.press('Enter');
  await page.getByText('kernel saw 3').waitFor({ timeout: 30000 });
});

test('tqdm.notebook counts to its end', async () => {
  await run('bar.ipynb', [
    'from tqdm.notebook import tqdm', 'import time',
    'for _ in tqdm(range(20), desc="work"): time.sleep(0.02)', 'print("all done")'
  ].join('\n'));
  await page.getByText('all done').first().waitFor({ timeout: 60000 });
  await page.getByText('20/20').first().waitFor({ timeout: 30000 });
});

test('%matplotlib widget draws a figure that came in binary buffers', async () => {
  await run('figure.ipynb', '%matplotlib widget\nimport matplotlib.pyplot as plt\n' +
    'fig, ax = plt.subplots(); ax.plot([1, 3, 2]); None', 'plt.show()');
  const canvas = page.locator('.jupyter-matplotlib canvas').first();
  await canvas.waitFor({ timeout: 60000 });
  const painted = () => canvas.evaluate(c => {
    const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    return data.some((v, i) => i % 4 === 3 && v > 0);
  });
  for (let i = 0; i < 100 && !(await painted()); i++) await page.waitForTimeout(100);
  assert.ok(await painted());
});

test('input() asks in the page and gets its answer', async () => {
  await run('ask.ipynb', 'name = input("who? ")\nprint("hello", name)');
  const field = page.locator('.jp-Stdin-input').first();
  await field.waitFor({ timeout: 60000 });
  await field.fill('Ada');
  await field.press('Enter');
  await page.getByText('hello Ada').first().waitFor({ timeout: 30000 });
});

test('the debugger starts and shows variables', async () => {
  await run('debug.ipynb', 'x = 41');
  const toggle = page.locator('.jp-DebuggerBugButton').first();
  await toggle.waitFor({ timeout: 30000 });
  await toggle.click();
  await page.locator('.jp-DebuggerSidebar, #jp-debugger-sidebar').first()
    .waitFor({ state: 'attached', timeout: 30000 });
  await page.locator('.jp-DebuggerVariables').getByText('x', { exact: true }).first()
    .waitFor({ state: 'attached', timeout: 30000 });
});
