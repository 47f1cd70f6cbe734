#!/bin/bash
awk 'NR > 1 {total += $1} END {print total}' /data/numbers.txt
