// The client library of JupyterLab, unmodified, in Node: it knows nothing of REITOS.
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { PageConfig } from '@jupyterlab/coreutils';
import {
  ContentsManager, KernelManager, KernelSpecManager, ServerConnection, SessionManager,
  TerminalManager
} from '@jupyterlab/services';
import WebSocket from 'ws';

import { Daemon, until } from './daemon.mjs';

globalThis.File ??= File; // Node 18 does not have it there

const daemon = new Daemon();
const sockets = new Set();
let managers = [];

// so that a test can drop connections as a lost network does
class TrackedSocket extends WebSocket {
  constructor(...args) {
    super(...args);
    sockets.add(this);
    this.on('close', () => sockets.delete(this));
  }
}

function client() {
  const serverSettings = ServerConnection.makeSettings({
    baseUrl: daemon.url, wsUrl: daemon.url.replace('http', 'ws'), token: daemon.token,
    appendToken: true, WebSocket: TrackedSocket
  });
  const kernels = new KernelManager({ serverSettings });
  const sessions = new SessionManager({ serverSettings, kernelManager: kernels });
  managers.push(sessions, kernels);
  return { serverSettings, kernels, sessions };
}

async function run(kernel, code) {
  const out = { text: '', value: undefined };
  const future = kernel.requestExecute({ code, stop_on_error: true });
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream') out.text += message.content.text;
    if (message.header.msg_type === 'execute_result') {
      out.value = message.content.data['text/plain'];
    }
  };
  out.reply = (await future.done).content;
  return out;
}

before(() => daemon.start());

after(async () => {
  await Promise.allSettled(managers.map(manager => manager.ready));
  for (const manager of managers) manager.dispose();
  for (const socket of sockets) socket.terminate();
  await daemon.stop();
});

test('kernelspecs are valid for the client', async () => {
  const specs = new KernelSpecManager({ serverSettings: client().serverSettings });
  managers.push(specs);
  await specs.ready;
  assert.equal(specs.specs.default, 'python3');
  assert.equal(specs.specs.kernelspecs.python3.language, 'python');
});

test('start, execute, complete, inspect', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  assert.equal((await kernel.info).language_info.name, 'python');
  const result = await run(kernel, 'print("seen"); 6 * 7');
  assert.equal(result.reply.status, 'ok');
  assert.equal(result.text, 'seen\n');
  assert.equal(result.value, '42');
  const complete = await kernel.requestComplete({ code: 'impor', cursor_pos: 5 });
  assert.ok(complete.content.matches.includes('import'));
  const inspect = await kernel.requestInspect({ code: 'len', cursor_pos: 3, detail_level: 0 });
  assert.equal(inspect.content.found, true);
  await kernel.shutdown();
});

test('an error stops what is queued', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  const [first, second] = await Promise.all([run(kernel, '1 / 0'), run(kernel, '1')]);
  assert.equal(first.reply.ename, 'ZeroDivisionError');
  assert.equal(second.reply.status, 'aborted');
  assert.equal((await run(kernel, '2')).value, '2');
  await kernel.shutdown();
});

test('input is asked for and given', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  const future = kernel.requestExecute({ code: 'print(input("name? ")[::-1])', allow_stdin: true });
  let text = '';
  future.onStdin = message => {
    assert.equal(message.content.prompt, 'name? ');
    kernel.sendInputReply({ status: 'ok', value: 'ada' }, message.header);
  };
  future.onIOPub = m => {
    if (m.header.msg_type === 'stream') text += m.content.text;
  };
  await future.done;
  assert.equal(text, 'ada\n');
  await kernel.shutdown();
});

test('comms carry binary buffers both ways', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3', handleComms: true });
  await run(kernel, `
from ipykernel.comm import Comm
def opened(comm, message):
    def echo(m):
        comm.send({'n': len(m['buffers'])}, buffers=[bytes(b)[::-1] for b in m['buffers']])
    comm.on_msg(echo)
get_ipython().kernel.comm_manager.register_target('echo', opened)`);
  const comm = kernel.createComm('echo');
  const reply = new Promise(resolve => (comm.onMsg = resolve));
  comm.open({});
  comm.send({}, {}, [new Uint8Array([1, 2, 3, 255]).buffer]);
  const message = await reply;
  assert.deepEqual(message.content.data, { n: 1 });
  assert.deepEqual([...new Uint8Array(message.buffers[0].buffer ?? message.buffers[0])].slice(-4),
    [255, 3, 2, 1]);
  await kernel.shutdown();
});

test('interrupt ends a cell', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  const cell = run(kernel, 'import time\nprint("in", flush=True)\ntime.sleep(60)');
  await until('the cell runs', () => kernel.status === 'busy');
  await sleep(300);
  await kernel.interrupt();
  assert.equal((await cell).reply.ename, 'KeyboardInterrupt');
  await kernel.shutdown();
});

test('an abrupt drop loses nothing', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  await run(kernel, '1');
  const cell = run(kernel, 'import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(.1)');
  await sleep(600);
  for (const socket of sockets) socket.terminate();
  const { text, reply } = await cell;
  assert.equal(reply.status, 'ok');
  assert.deepEqual(text.trim().split('\n'), [...Array(20).keys()].map(String));
  await kernel.shutdown();
});

test('a reload with a new session id: output is in the notebook, the kernel goes on', async () => {
  const page = client();
  const contents = new ContentsManager({ serverSettings: page.serverSettings });
  managers.push(contents);
  const notebook = {
    cells: [{ cell_type: 'code', id: 'loop', source: '', metadata: {}, outputs: [],
      execution_count: null }],
    metadata: {}, nbformat: 4, nbformat_minor: 5
  };
  await contents.save('reload.ipynb', { type: 'notebook', format: 'json', content: notebook });
  const options = { name: 'reload.ipynb', path: 'reload.ipynb', type: 'notebook',
    kernel: { name: 'python3' } };
  const session = await page.sessions.startNew(options);
  await session.kernel.info;
  session.kernel.requestExecute({
    code: 'kept = 1\nimport time\nfor i in range(8):\n    print(f"L{i}", flush=True)\n    time.sleep(.2)'
  }, false, { cellId: 'loop' });
  await sleep(900);
  for (const socket of sockets) socket.terminate();
  session.dispose();

  const again = client();
  const model = await again.sessions.findByPath('reload.ipynb');
  const kernel = again.kernels.connectTo({ model: model.kernel });
  const expected = [...Array(8).keys()].map(i => `L${i}\n`).join('');
  await until('all output is in the notebook', async () => {
    const { content } = await contents.get('reload.ipynb', { content: true });
    return content.cells[0].outputs.map(o => [o.text].flat().join('')).join('') === expected;
  });
  assert.equal((await run(kernel, 'kept')).value, '1');
  await again.sessions.shutdown(model.id);
});

test('restart keeps the id and empties the namespace', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  const { id } = kernel;
  await run(kernel, 'x = 1');
  await kernel.restart();
  assert.equal(kernel.id, id);
  assert.equal((await run(kernel, 'x')).reply.ename, 'NameError');
  await kernel.shutdown();
});

test('a killed kernel comes back and says so', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  await run(kernel, '1');
  const seen = [];
  kernel.statusChanged.connect((_, status) => seen.push(status));
  run(kernel, 'import os; os.kill(os.getpid(), 9)').catch(() => undefined);
  await until('the client was told', () =>
    seen.includes('restarting') || seen.includes('autorestarting') || seen.includes('dead'));
  await until('the kernel is idle again', () => kernel.status === 'idle');
  assert.equal((await run(kernel, '40 + 2')).value, '42');
  await kernel.shutdown();
});

test('two clients of one kernel each get what is theirs', async () => {
  const kernel = await client().kernels.startNew({ name: 'python3' });
  await kernel.info;
  const second = client().kernels.connectTo({ model: kernel.model });
  await second.info;
  const [a, b] = await Promise.all([run(kernel, 'print("a")'), run(second, 'print("b")')]);
  assert.equal(a.text, 'a\n');
  assert.equal(b.text, 'b\n');
  await kernel.shutdown();
});

test('a terminal echoes', async () => {
  PageConfig.setOption('terminalsAvailable', 'true');
  const terminals = new TerminalManager({ serverSettings: client().serverSettings });
  managers.push(terminals);
  const terminal = await terminals.startNew();
  let text = '';
  terminal.messageReceived.connect((_, message) => {
    if (message.type === 'stdout') text += message.content[0];
  });
  terminal.send({ type: 'stdin', content: ['echo sum$((40+2))\r'] });
  await until('the echo', () => text.includes('sum42'));
  await terminal.shutdown();
});
