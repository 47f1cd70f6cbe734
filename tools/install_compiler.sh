#!/bin/sh
# Makes sure that there is a C++ compiler, for the engine's kernel on a CPU. Quartet works without one, more slowly.
set -eu
if command -v c++ >/dev/null 2>&1; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing g++"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ >/dev/null && exit 0
fi
echo "no C++ compiler: the engine takes up to twice as long on a CPU; 'sudo apt-get install g++' mends that" >&2
