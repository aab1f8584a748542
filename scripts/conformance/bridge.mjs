// Lets a client that speaks MCP over HTTP reach a server that speaks it on its standard streams. For tests only:
// the conformance suite knows HTTP and nothing else.
//
//   node bridge.mjs PROGRAM [ARGUMENT...]      prints the address, and serves until it is ended
//
// A session of the older protocol has a process of its own; requests of the newer one, each of which stands by
// itself, share one. Nothing is read into messages but what tells where they belong.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const [program, ...args] = process.argv.slice(2);
// Invalid request, invalid parameters, missing capability, unsupported version.
const STATUS_400 = [-32600, -32602, -32021, -32022];
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';

// A server process. Ids are given anew: clients that share it may choose the same.
class Server {
    #next = 1;
    #asked = new Map();
    streams = new Set();

    constructor() {
        this.child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
        createInterface({ input: this.child.stdout }).on('line', (line) => this.#heard(JSON.parse(line)));
    }

    // Sends a request; `write` gets all that belongs to it, `end` is called after its answer.
    ask(message, write, end) {
        const id = this.#next++;
        const token = message.params?._meta?.progressToken;
        this.#asked.set(id, { id: message.id, token, write, end });
        this.tell({ ...message, id });
        return () => {
            if (this.#asked.delete(id)) {
                this.tell({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } });
            }
        };
    }

    tell(message) {
        this.child.stdin.write(`${JSON.stringify(message)}\n`);
    }

    #heard(message) {
        const asked = this.#asked.get(message.id);
        if (!message.method && asked) {
            this.#asked.delete(message.id);
            asked.write({ ...message, id: asked.id });
            asked.end();
            return;
        }
        const meta = message.params?._meta;
        const subscribed = this.#asked.get(Number(meta?.[SUBSCRIPTION]));
        if (subscribed) {
            meta[SUBSCRIPTION] = String(subscribed.id);
            subscribed.write(message);
            return;
        }
        const token = message.params?.progressToken;
        const waiting = [...this.#asked.values()].find((a) => token !== undefined && a.token === token);
        if (waiting) {
            waiting.write(message);
        } else {
            for (const write of this.streams) write(message);
        }
    }

    end() {
        this.child.kill();
    }
}

const sessions = new Map();
let shared;

function refuse(response, status, text) {
    const error = { jsonrpc: '2.0', id: null, error: { code: -32000, message: text } };
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(error));
}

function stream(response, headers) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache', ...headers });
    response.flushHeaders();
    return (message) => response.write(`data: ${JSON.stringify(message)}\n\n`);
}

// An answer to a request of the newer protocol: a stream, or an error with the status that its code has there.
function answer(response) {
    let write;
    return (message) => {
        if (!write && message.error) {
            const status = message.error.code === -32601 ? 404 : STATUS_400.includes(message.error.code) ? 400 : 200;
            response.writeHead(status, { 'content-type': 'application/json' }).write(JSON.stringify(message));
            return;
        }
        write ??= stream(response, {});
        write(message);
    };
}

function post(request, response, message) {
    const newer = request.headers['mcp-protocol-version'] >= '2026' || message.method === 'server/discover';
    let name = request.headers['mcp-session-id'];
    let server = sessions.get(name);
    if (newer) {
        server = shared ??= new Server();
        name = undefined;
    } else if (message.method === 'initialize') {
        name = randomUUID();
        server = new Server();
        sessions.set(name, server);
    }
    if (!server) {
        return refuse(response, name ? 404 : 400, 'there is no such session');
    }
    if (message.id === undefined || !message.method) {
        server.tell(message);
        return response.writeHead(202).end();
    }
    const write = name ? stream(response, { 'mcp-session-id': name }) : answer(response);
    const cancel = server.ask(message, write, () => response.end());
    // In the newer protocol, closing the stream cancels; in the older, only a notification does.
    if (!name) response.on('close', cancel);
}

const http = createServer((request, response) => {
    const local = (host) => /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(host);
    const origin = request.headers.origin;
    if (!local(request.headers.host ?? '') || (origin && !local(new URL(origin).host))) {
        return refuse(response, 403, 'only this machine may ask');
    }
    const session = sessions.get(request.headers['mcp-session-id']);
    if (request.method === 'POST') {
        const parts = [];
        request.on('data', (part) => parts.push(part));
        request.on('end', () => {
            let message;
            try {
                message = JSON.parse(Buffer.concat(parts));
            } catch {
                return refuse(response, 400, 'this is not JSON');
            }
            post(request, response, message);
        });
    } else if (request.method === 'GET' && session) {
        const write = stream(response, {});
        session.streams.add(write);
        response.on('close', () => session.streams.delete(write));
    } else if (request.method === 'DELETE' && session) {
        session.end();
        sessions.delete(request.headers['mcp-session-id']);
        response.writeHead(200).end();
    } else {
        refuse(response, request.headers['mcp-session-id'] ? 404 : 405, 'there is nothing here');
    }
});

http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
process.on('SIGTERM', () => {
    for (const server of [...sessions.values(), shared]) server?.end();
    process.exit(0);
});
