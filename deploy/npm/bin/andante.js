#!/usr/bin/env node
// Runs the binary of this platform, which is in an optional dependency, with the same arguments.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `andante-proxy-${process.platform}-${process.arch}`;

function binary() {
  if (process.env.ANDANTE_BINARY) return process.env.ANDANTE_BINARY;
  try {
    return require.resolve(`${name}/bin/andante`);
  } catch {
    const hint = process.platform === "linux" && ["x64", "arm64"].includes(process.arch)
      ? "install without --omit=optional, on a system with glibc"
      : "there are binaries for Linux on x64 and arm64; set ANDANTE_BINARY to one that was built from source";
    console.error(`error: the package ${name} is not installed\nhint: ${hint}`);
    process.exit(1);
  }
}

const path = binary();
const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });

// andante drains on a signal, and exits at once on a second one. A terminal sends Ctrl-C to both processes, so it is passed on
// only where there is no terminal.
for (const signal of ["SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => child.kill(signal));
}
const terminal = [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY);
process.on("SIGINT", () => terminal || child.kill("SIGINT"));

child.on("error", (error) => {
  console.error(`error: cannot run ${path}\ncaused by: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
