#!/bin/sh
# Makes sure that there is a Chromium with fonts: the headless shell to act in, the whole browser and its driver for the
# parity tests. Installs Debian's packages where the user may, those that the release has; otherwise uses the browser that
# is there, or says what to install.
set -eu
have() { command -v "$1" >/dev/null 2>&1; }
packages="chromium-headless-shell chromium chromium-driver fonts-dejavu-core"

if have dpkg && dpkg -s $packages >/dev/null 2>&1; then exit 0; fi
if have apt-get && [ "$(id -u)" = 0 ]; then
    apt-get update -qq || echo "apt-get could not update its lists" >&2
    known=""
    for package in $packages; do
        if apt-cache show "$package" >/dev/null 2>&1; then known="$known $package"; else echo "no package $package here" >&2; fi
    done
    echo "installing$known"
    apt-get install -y -qq --no-install-recommends $known >/dev/null || echo "apt-get could not install$known" >&2
fi
for browser in chromium-headless-shell chrome-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
    if have "$browser"; then echo "using $(command -v "$browser")"; exit 0; fi
done
echo "Quartet needs Chromium: run 'sudo apt-get install $packages', or install Google Chrome, and try again." >&2
exit 1
