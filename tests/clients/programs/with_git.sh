#!/bin/sh
# Usage: with_git.sh BASE
set -eu
git clone --quiet "$1/git/repo.git" clone
[ "$(cat clone/hello)" = hello ]
git -C clone fsck --no-progress
echo spoke
