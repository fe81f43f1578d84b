"""A Jupyter kernel client over REST and WebSocket, both framings, for black-box tests.

Nothing here knows REITOS: the same client drives a stock Jupyter Server (see tests/bench).
"""

import json
import struct
import time
import uuid

import requests
import websocket

V1 = "v1.kernel.websocket.jupyter.org"
CHANNELS = ("shell", "control", "stdin", "iopub")


def message(msg_type, content, session, metadata=None, channel="shell", buffers=(), **header):
    """A message as a dict: header, parent_header, metadata, content, channel, buffers."""
    head = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "session": session,
        "username": "test",
        "date": "2026-01-01T00:00:00.000000Z",
        "version": "5.3",
    }
    head.update(header)
    return {
        "header": head,
        "parent_header": {},
        "metadata": metadata or {},
        "content": content,
        "channel": channel,
        "buffers": list(buffers),
    }


def encode_v1(msg):
    parts = [msg["channel"].encode()]
    parts += [json.dumps(msg[k]).encode() for k in ("header", "parent_header", "metadata", "content")]
    parts += [bytes(b) for b in msg["buffers"]]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def decode_v1(data):
    (n,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{n}Q", data, 8)
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    out = {"channel": parts[0].decode(), "buffers": parts[5:]}
    for key, part in zip(("header", "parent_header", "metadata", "content"), parts[1:5]):
        out[key] = json.loads(part)
    return out


def encode_legacy(msg):
    """Returns (data, binary)."""
    body = {k: v for k, v in msg.items() if k != "buffers"}
    if not msg["buffers"]:
        return json.dumps(body), False
    parts = [json.dumps(body).encode()] + [bytes(b) for b in msg["buffers"]]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f">{len(offsets) + 1}I", len(parts), *offsets) + b"".join(parts), True


def decode_legacy(data):
    if isinstance(data, str):
        out = json.loads(data)
        out["buffers"] = []
        return out
    (n,) = struct.unpack_from(">I", data)
    offsets = list(struct.unpack_from(f">{n}I", data, 4)) + [len(data)]
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    out = json.loads(parts[0])
    out["buffers"] = parts[1:]
    return out


class Server:
    """REST calls with the token set; `api("GET", "api/kernels")`."""

    def __init__(self, url, token):
        self.url = url.rstrip("/") + "/"
        self.token = token
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {token}"

    def api(self, method, path, body=None, expect=None, **kw):
        kw.setdefault("timeout", 60)
        r = self.http.request(method, self.url + path, json=body, **kw)
        if expect is not None:
            assert r.status_code == expect, (method, path, r.status_code, r.text[:500])
        return r

    def start_kernel(self, **body):
        return self.api("POST", "api/kernels", body, expect=201).json()["id"]

    def start_session(self, path, name="python3", type="notebook"):
        body = {"path": path, "name": path, "type": type, "kernel": {"name": name}}
        return self.api("POST", "api/sessions", body, expect=201).json()

    def stop_kernel(self, kid):
        self.api("DELETE", f"api/kernels/{kid}", expect=204)

    def model(self, kid):
        return self.api("GET", f"api/kernels/{kid}", expect=200).json()

    def connect(self, kid, **kw):
        return Channels(self, kid, **kw)

    def wait_state(self, kid, state, timeout=20):
        end = time.monotonic() + timeout
        while (model := self.model(kid))["execution_state"] != state:
            assert time.monotonic() < end, model
            time.sleep(0.02)
        return model


class Channels:
    """The WebSocket of one client of one kernel."""

    def __init__(self, server, kid, session=None, v1=True, timeout=30):
        self.server, self.kid = server, kid
        self.session = session or uuid.uuid4().hex
        self.v1 = v1
        url = server.url.replace("http", "ws", 1)
        self.ws = websocket.create_connection(
            f"{url}api/kernels/{kid}/channels?session_id={self.session}",
            header=[f"Authorization: token {server.token}"],
            subprotocols=[V1] if v1 else None,
            timeout=timeout,
            suppress_origin=True,
            enable_multithread=True,
        )
        assert (self.ws.getsubprotocol() == V1) == v1

    def send(self, msg):
        if self.v1:
            self.ws.send_binary(encode_v1(msg))
        else:
            data, binary = encode_legacy(msg)
            (self.ws.send_binary if binary else self.ws.send)(data)
        return msg["header"]["msg_id"]

    def request(self, msg_type, content=None, **kw):
        return self.send(message(msg_type, content or {}, self.session, **kw))

    def execute_async(self, code, cell_id=None, **content):
        body = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        body.update(content)
        return self.request("execute_request", body, metadata={"cellId": cell_id} if cell_id else {})

    def recv(self, timeout=None):
        if timeout is not None:
            self.ws.settimeout(timeout)
        data = self.ws.recv()
        assert data != "", "connection closed"
        return decode_v1(data) if self.v1 else decode_legacy(data)

    def collect(self, msg_id, timeout=60):
        """All messages of one request until both its reply and its idle status were seen."""
        got, reply, idle = [], False, False
        end = time.monotonic() + timeout
        while not (reply and idle):
            left = end - time.monotonic()
            assert left > 0, f"timeout; got {[(m['channel'], m['header']['msg_type']) for m in got]}"
            m = self.recv(left)
            if m["parent_header"].get("msg_id") != msg_id:
                continue
            got.append(m)
            reply |= m["channel"] == "shell"
            idle |= m["header"]["msg_type"] == "status" and m["content"]["execution_state"] == "idle"
        return got

    def execute(self, code, timeout=60, **kw):
        return Result(self.collect(self.execute_async(code, **kw), timeout))

    def drop(self):
        """Ends the connection without a closing handshake, as a lost network does."""
        self.ws.sock.close()

    def close(self):
        self.ws.close()


class Result:
    """What one execute_request brought."""

    def __init__(self, messages):
        self.messages = messages

    def of(self, msg_type):
        return [m for m in self.messages if m["header"]["msg_type"] == msg_type]

    @property
    def reply(self):
        return self.of("execute_reply")[0]["content"]

    @property
    def status(self):
        return self.reply["status"]

    @property
    def text(self):
        return "".join(m["content"]["text"] for m in self.of("stream"))

    @property
    def value(self):
        found = self.of("execute_result")
        return found[0]["content"]["data"]["text/plain"] if found else None
