// SPDX-License-Identifier: Apache-2.0
// Perfetto's trace processor, as its page has it, outside of a browser: FOLDER has engine_bundle.js and the .wasm files.
// Standard input and output are its RPC streams (protos/perfetto/trace_processor/trace_processor.proto).
const fs = require("node:fs");
const path = require("node:path");
const folder = process.argv[2];

process.on("uncaughtException", (error) => {
  process.stderr.write(`${error}\n`); // and not the line of code, which is all of it
  process.exit(1);
});
globalThis.self = globalThis;
globalThis.importScripts = () => {}; // as in a worker of a browser
globalThis.location = { href: "http://127.0.0.1/engine_bundle.js" };
// Synchronous, as workers may: then all is there when the bundle has run.
globalThis.XMLHttpRequest = class {
  open(method, name) {
    this.file = path.join(folder, path.basename(name));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
};
globalThis.WorkerGlobalScope = function () {};
process.type = "renderer"; // otherwise it would see that it is not in one
console.log = console.warn = console.error;

(0, eval)(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));

const port = { postMessage: (reply) => fs.writeSync(1, reply) };
self.onmessage({ data: port });
const requests = new Uint8Array(fs.readFileSync(0));
// Once what waits for the compiled module has run.
setImmediate(() => {
  port.onmessage({ data: requests });
  process.exit(0);
});
