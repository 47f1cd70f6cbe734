#!/bin/sh
# Makes sure that PostgreSQL's server programs are there, for the tests: they start a server of their own.
set -eu
if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing postgresql"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null && exit 0
fi
echo "the tests need PostgreSQL: run 'sudo apt-get install postgresql', and try again." >&2
exit 1
