"""Who generates in `benchmarks/engine.py`: one file per contender, all with the same model, requests and threads."""
