#!/bin/sh
# Usage: with_cargo.sh BASE
set -eu
mkdir src
echo 'fn main() {}' >src/main.rs
cat >Cargo.toml <<TOML
[package]
name = "fetches"
version = "1.0.0"
edition = "2021"
[dependencies]
tiny = { version = "1", registry = "test" }
TOML
CARGO_HOME=$PWD/home CARGO_REGISTRIES_TEST_INDEX=sparse+$1/cargo/ cargo fetch --quiet
ls home/registry/src/*/tiny-1.0.0/src/lib.rs >found
echo spoke
