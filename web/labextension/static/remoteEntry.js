// @ts-check
/*
 * JupyterLab extension of REITOS: a page that is opened while a cell runs shows that cell's output.
 *
 * Stock JupyterLab knows the cells that its own page has sent; messages of other requests are
 * ignored, so after a reload a running cell stays silent. reitosd replays the running request to a
 * new page from its start; this plugin asks which cell it belongs to and feeds the messages to it.
 *
 * The file is a module federation container written by hand (the interface is two functions), so it
 * needs no bundler: `init` receives JupyterLab's shared modules, `get` hands out the plugin.
 */
(() => {
  const MAX_BUFFERED = 10000; // messages kept per request until its cell is known
  const OUTPUTS = ['stream', 'display_data', 'execute_result', 'error'];

  /** The first version of a shared module. */
  async function shared(scope, name) {
    const versions = Object.values(scope[name] || {});
    if (!versions.length) {
      throw new Error(`REITOS: JupyterLab does not share ${name}`);
    }
    return (await versions[0].get())();
  }

  /** Feeds iopub messages of one request into a code cell, as the page that sent it would. */
  class CellFeed {
    constructor(cell) {
      this.cell = cell;
      this.count = null;
      this.displays = new Map(); // display_id -> indices in the output area
      cell.model.outputs.clear();
      cell.setPrompt('*');
    }

    add(msg) {
      const type = msg.header.msg_type;
      const outputs = this.cell.model.outputs;
      if (OUTPUTS.includes(type)) {
        const { transient, ...output } = msg.content;
        outputs.add({ ...output, output_type: type });
        const id = transient && transient.display_id;
        if (id) {
          this.displays.set(id, [...(this.displays.get(id) || []), outputs.length - 1]);
        }
      } else if (type === 'update_display_data') {
        this.update(msg.content);
      } else if (type === 'clear_output') {
        outputs.clear(msg.content.wait);
        this.displays.clear();
      } else if (type === 'execute_input') {
        this.count = msg.content.execution_count;
      }
    }

    update(content) {
      const outputs = this.cell.model.outputs;
      for (const index of this.displays.get((content.transient || {}).display_id) || []) {
        outputs.set(index, {
          output_type: 'display_data',
          data: content.data,
          metadata: content.metadata
        });
      }
    }

    end() {
      this.cell.model.executionCount = this.count;
      this.cell.setPrompt(this.count === null ? '' : String(this.count));
    }
  }

  /** Watches one notebook panel for messages of requests that this page did not send. */
  class Reattach {
    constructor(panel, services) {
      this.panel = panel;
      this.services = services;
      this.feeds = new Map(); // msg_id -> CellFeed
      this.waiting = new Map(); // msg_id -> messages, until the cell is known
      this.ignored = new Set(); // requests that are no cell of this notebook, or have ended
      panel.sessionContext.iopubMessage.connect((_, msg) => this.onMessage(msg));
      panel.disposed.connect(() => this.waiting.clear());
    }

    onMessage(msg) {
      const parent = msg.parent_header || {};
      const session = this.panel.sessionContext.session;
      const kernel = session && session.kernel;
      if (!parent.msg_id || parent.msg_type !== 'execute_request' || !kernel) {
        return;
      }
      if (parent.session === kernel.clientId) {
        return; // the page's own futures handle it
      }
      const feed = this.feeds.get(parent.msg_id);
      if (feed) {
        this.deliver(parent.msg_id, feed, msg);
        return;
      }
      if (this.ignored.has(parent.msg_id)) {
        return;
      }
      let held = this.waiting.get(parent.msg_id);
      if (!held) {
        held = [];
        this.waiting.set(parent.msg_id, held);
        void this.findCell(kernel.id, parent.msg_id);
      }
      if (held.length < MAX_BUFFERED) {
        held.push(msg);
      }
    }

    deliver(id, feed, msg) {
      if (msg.header.msg_type === 'status' && msg.content.execution_state === 'idle') {
        feed.end();
        this.feeds.delete(id);
      } else {
        feed.add(msg);
      }
    }

    async findCell(kernelId, msgId) {
      const { ServerConnection } = this.services;
      const settings = ServerConnection.makeSettings();
      const url = `${settings.baseUrl}reitos/api/kernels/${kernelId}/running`;
      const response = await ServerConnection.makeRequest(url, {}, settings);
      const running = response.ok ? await response.json() : {};
      await this.panel.context.ready;
      const held = this.waiting.get(msgId) || [];
      this.waiting.delete(msgId);
      const cell =
        running.msg_id === msgId &&
        this.panel.content.widgets.find(w => w.model.id === running.cell_id);
      if (!cell || cell.model.type !== 'code') {
        this.ignored.add(msgId);
        return;
      }
      const feed = new CellFeed(cell);
      this.feeds.set(msgId, feed);
      for (const msg of held) {
        this.deliver(msgId, feed, msg);
      }
    }
  }

  let scope = {};

  async function makePlugin() {
    const { INotebookTracker } = await shared(scope, '@jupyterlab/notebook');
    const services = await shared(scope, '@jupyterlab/services');
    return {
      id: '@reitos/labextension:reattach',
      description: 'Shows the output of a cell that was running when the page was opened.',
      autoStart: true,
      requires: [INotebookTracker],
      activate: (_app, tracker) => {
        tracker.widgetAdded.connect((_, panel) => new Reattach(panel, services));
      }
    };
  }

  const registry = (globalThis._JUPYTERLAB = globalThis._JUPYTERLAB || {});
  registry['@reitos/labextension'] = {
    init(shareScope) {
      scope = shareScope;
    },
    async get(module) {
      if (module !== './extension') {
        throw new Error(`REITOS: no module ${module}`);
      }
      const plugin = await makePlugin();
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
