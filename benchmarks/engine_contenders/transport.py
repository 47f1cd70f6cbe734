"""Cost of a call over HTTP, compared with the same call without HTTP."""

import asyncio
import statistics
import time
from collections.abc import Awaitable

from benchmarks.engine_contenders.base import distinct
from benchmarks.engine_contenders.ours import Ours
from quartet.engine.base import GenerateRequest
from quartet.engine.http import HttpEngine
from quartet.engine.server import serve
from quartet.types import Sampling

TOKEN = "token-of-a-benchmark"


def transport_ms_p50(ours: Ours, calls: int) -> float:
    """Return the median milliseconds of a call over HTTP minus those of a direct call; both are made in turn."""
    return asyncio.run(_measure(ours, calls))


async def _measure(ours: Ours, calls: int) -> float:
    prompts = distinct(calls, 256, 1, seed="transport").prompts
    seconds: dict[str, list[float]] = {"direct": [], "http": []}
    async with serve(ours.engine, token=TOKEN) as url:
        client = HttpEngine(lambda: url, token=TOKEN)
        await client.version()
        for index, prompt in enumerate(prompts):
            request = GenerateRequest(
                request_id=f"transport/{index}", prompt_ids=prompt, sampling=Sampling(max_tokens=1), stop_token_ids=[]
            )
            await ours.engine.generate(request)  # so that both measured calls have the prompt in the prefix cache
            seconds["direct"].append(await _timed(ours.engine.generate(request)))
            seconds["http"].append(await _timed(client.generate(request)))
        await client.close()
    return 1e3 * (statistics.median(seconds["http"]) - statistics.median(seconds["direct"]))


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began
