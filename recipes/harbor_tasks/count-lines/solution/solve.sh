#!/bin/bash
wc -l < poem.txt | tr -d ' ' > answer.txt
