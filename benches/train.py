#!/usr/bin/env python3
"""The training run of profile-guided optimisation: what andante does most of the time, some 20 s of it on loopback.

Requests in the clear, by gateway addresses, intercepted with HTTP/1 and HTTP/2 on each side, through blind tunnels, and in
a queue that a limit paces. deploy/release runs this with an instrumented build, which writes its counts when it ends.

usage: benches/train.py --andante PATH --profiles FOLDER [--requests N]

Needs nginx and openssl (Debian packages).
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

from instructions import WAYS, Load, World

# Of each way. The build that counts is a third as fast as others.
REQUESTS = 20_000
# Number of requests that a limit of 2,000 a second delays for 3 s.
PACED = 6_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path, required=True)
    parser.add_argument("--profiles", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    missing = [tool for tool in ("nginx", "openssl", str(args.andante)) if not shutil.which(tool)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: apt-get install nginx openssl")
    args.profiles.mkdir(parents=True, exist_ok=True)
    # A file for each process.
    os.environ["LLVM_PROFILE_FILE"] = str(args.profiles.resolve() / "%p.profraw")
    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder), args)
        try:
            for way in WAYS:
                train(world, way, args.requests)
            train(world, "plain", PACED, limit="*=2000/s")
            train(world, "h1-h1", args.requests, intercept="none")
        finally:
            world.close()
    if not any(args.profiles.glob("*.profraw")):
        sys.exit(f"error: {args.andante} has counted nothing\nhint: build it with RUSTFLAGS=-Cprofile-generate")


def train(world, way, requests, **flags):
    """Sends so many requests through an andante of their own. A flag takes the place of the bench's."""
    command, port = world.command("andante", way)
    for flag, value in flags.items():
        command[command.index(f"--{flag}") + 1] = value
    process = world.start(command, port)
    load = Load(world.client("andante", way, port), way)
    load.run(requests)
    # A tunnel that is open would be drained for longer than is waited for.
    for client in load.clients:
        client.stream.close()
    world.stop(process)


if __name__ == "__main__":
    main()
