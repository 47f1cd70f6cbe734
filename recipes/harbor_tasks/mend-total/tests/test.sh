#!/bin/bash
bash /tests/judge.sh > /logs/verifier/reward.json
