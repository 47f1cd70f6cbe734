#!/bin/bash
bash /solution/mend.sh
