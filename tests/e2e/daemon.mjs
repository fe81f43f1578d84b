// A reitosd of its own for a test file: private folders, port and token; nothing stays behind.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createWriteStream, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const repo = join(dirname(fileURLToPath(import.meta.url)), '..', '..');

async function freePort() {
  const server = createServer();
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise(resolve => server.close(resolve));
  return port;
}

export class Daemon {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), 'reitos-e2e-'));
    this.root = join(this.home, 'root');
    mkdirSync(this.root);
    this.token = randomBytes(16).toString('hex');
  }

  async start(...flags) {
    this.port ??= await freePort();
    this.url = `http://127.0.0.1:${this.port}/`;
    const build = process.env.REITOS_BUILD ?? join(repo, 'build');
    const log = createWriteStream(join(this.home, 'daemon.log'), { flags: 'a' });
    await new Promise(resolve => log.on('open', resolve));
    this.process = spawn(
      join(build, 'reitosd'),
      ['--listen', `127.0.0.1:${this.port}`, '--root', this.root, '--data',
        join(this.home, 'data'), '--token', this.token, ...flags],
      {
        cwd: this.root,
        stdio: ['ignore', log, log],
        env: { ...process.env, HOME: this.home, JUPYTER_DATA_DIR: join(this.home, 'jupyter'),
          JUPYTER_CONFIG_DIR: join(this.home, 'config'), IPYTHONDIR: join(this.home, 'ipython'),
          XDG_CONFIG_HOME: join(this.home, 'xdg'), MPLCONFIGDIR: join(this.home, 'mpl') }
      });
    this.exited = new Promise(resolve => this.process.on('exit', resolve));
    for (let i = 0; i < 600; i++) {
      if (this.process.exitCode !== null) break;
      try {
        if ((await fetch(`${this.url}api`)).ok) return this;
      } catch {
        // not listening yet
      }
      await sleep(50);
    }
    throw new Error(`reitosd does not answer:\n${this.log()}`);
  }

  log() {
    return readFileSync(join(this.home, 'daemon.log'), 'utf8');
  }

  async api(method, path, body) {
    const reply = await fetch(this.url + path, {
      method,
      headers: { authorization: `token ${this.token}`, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body)
    });
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return reply.status === 204 ? null : reply.json();
  }

  async kill() {
    this.process.kill('SIGKILL');
    await this.exited;
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill('SIGTERM');
      const late = setTimeout(() => this.process.kill('SIGKILL'), 30000);
      await this.exited;
      clearTimeout(late);
    }
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

export async function until(what, check, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await sleep(100);
  }
}
