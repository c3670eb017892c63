"""An ingest service: ``POST /events`` appends an event and answers when it is durable.

    WEB_CONCURRENCY=2 uvicorn app:app

One process writes a log, so each worker has a log of its own: it takes the first folder that no other process has
open. When a worker ends, however it ends, its lock is free at once and the worker that replaces it goes on in the
same folder. There are never more folders than workers.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from pydantic import BaseModel

import pyreplog
from pyreplog import aio

FOLDER = Path(os.environ.get("EVENTS", "events"))
WORKERS = int(os.environ.get("WEB_CONCURRENCY", "1"))
START_TIMEOUT_S = 30.0


class Event(BaseModel):
    """What clients send."""

    user: str
    kind: str


class Place(BaseModel):
    """The place of an event that is durable."""

    log: str
    offset: int


async def claim() -> aio.Log:
    """Open the first log that is free. At a restart that may take a moment, because the old workers still close
    theirs."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            for number in range(WORKERS):
                try:
                    return await aio.open_log(FOLDER / f"worker-{number}", topic="events", lock_timeout=0.05)
                except pyreplog.LockedError:
                    continue  # another worker's


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Each worker opens its log when it starts, and closes it when it ends. Never open one before the workers are
    forked."""
    async with await claim() as log:
        app.state.log = log
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/events", status_code=201)
async def post(event: Event, request: Request) -> Place:
    """Append one event. Requests that wait at the same time share one sync of the disk."""
    log: aio.Log = request.app.state.log
    offset = await log.append(event.model_dump_json().encode(), key=event.user.encode())
    return Place(log=Path(log.path).name, offset=offset)
