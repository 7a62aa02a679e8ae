// Starts servers and a browser for the tests of the page, and sends commands to the servers.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const PROGRAM = process.env.LOCKWHEEL
  ?? new URL("../../target/debug/lockwheel", import.meta.url).pathname;
const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
const BROWSER_ARGUMENTS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

async function freePort() {
  const listener = net.createServer();
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address();
  await new Promise((resolve) => listener.close(resolve));
  return port;
}

/** Another program may take a free port before the server does. */
const ATTEMPTS = 5;

/** A server with the page, and connections to it. */
export class Server {
  static async start(...options) {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const server = await Server.tryToStart(options);
      if (server) return server;
    }
    throw new Error("the server has ended");
  }

  static async tryToStart(options) {
    const server = new Server();
    server.port = await freePort();
    server.adminPort = await freePort();
    server.url = `http://127.0.0.1:${server.adminPort}`;
    const ports = ["--port", `${server.port}`, "--admin-port", `${server.adminPort}`];
    server.process = spawn(PROGRAM, [...options, ...ports, "--save", ""], { stdio: "ignore" });
    server.connections = [];
    while (!(await fetch(`${server.url}/readyz`).then((it) => it.ok, () => false))) {
      if (server.process.exitCode !== null) return null;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return server;
  }

  /** A connection with this name. */
  async client(name) {
    const client = new Client(this.port);
    this.connections.push(client);
    if (name) await client.call("CLIENT", "SETNAME", name);
    return client;
  }

  stop() {
    for (const client of this.connections) client.socket.destroy();
    this.process.kill();
  }
}

/** Two nodes of a cluster in new directories: the one that leads, and one that follows it. */
export async function startNodes() {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-nodes-"));
  const start = async (name, ...words) => {
    const options = ["--dir", join(folder, name), "--raft-port", `${await freePort()}`];
    return Server.start("raft", ...words, ...options);
  };
  const leader = await start("1", "init");
  const token = execFileSync(PROGRAM, ["raft", "token", "--dir", join(folder, "1")]);
  const follower = await start("2", "join", `${token}`.trim());
  const stop = () => {
    leader.stop();
    follower.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  return { leader, follower, stop };
}

/** A connection for commands with replies of one line, or of one text. */
class Client {
  constructor(port) {
    this.socket = net.connect(port, "127.0.0.1");
    this.received = "";
    this.waiting = [];
    this.socket.setEncoding("latin1");
    this.socket.on("data", (text) => this.take(text));
    this.socket.on("error", () => {});
  }

  take(text) {
    this.received += text;
    for (;;) {
      const end = this.received.indexOf("\r\n");
      if (end < 0) return;
      const line = this.received.slice(0, end);
      let length = end + 2;
      if (line[0] === "$" && line !== "$-1") length += Number(line.slice(1)) + 2;
      if (this.received.length < length) return;
      this.received = this.received.slice(length);
      this.waiting.shift()?.(line);
    }
  }

  /** Sends a command; resolves with the first line of the reply. */
  call(...words) {
    const encoded = words.map((it) => `$${Buffer.byteLength(`${it}`)}\r\n${it}\r\n`).join("");
    this.socket.write(`*${words.length}\r\n${encoded}`);
    return new Promise((resolve) => this.waiting.push(resolve));
  }
}

/** A browser with an empty profile. */
export async function openBrowser() {
  const profile = mkdtempSync(join(tmpdir(), "lockwheel-page-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: BROWSER, args: BROWSER_ARGUMENTS, headless: true,
    viewport: { width: 1440, height: 900 },
  });
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { context, close };
}
