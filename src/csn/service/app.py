"""The whole service as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from csn import __version__
from csn.classifier.classifier import FewShotClassifier
from csn.service import schemas
from csn.service.api import router
from csn.service.classroom import Access, Classroom
from csn.service.errors import ServiceError, add_handlers
from csn.service.guard import Guard
from csn.service.kinds import Kinds
from csn.service.limits import Limits
from csn.service.metrics import Metrics
from csn.service.store import Store
from csn.service.tasks import Tasks
from csn.service.workers import Workers

PAGE = Path(__file__).parent / "page"
ABOUT = (
    "Learn classes from a few drawings, photographs or sentences each and recognise them, one forward pass at a time. "
    "A task holds what was learned; ids are made by the server. Errors are always `{error: {code, message, remedy}}`."
)


def create_app(
    classifier: FewShotClassifier,
    folder: Path,
    *,
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    token: str | None = None,
    model: str | None = None,
    encoders: Mapping[str, FewShotClassifier] | None = None,
    access: Access | None = None,
) -> FastAPI:
    """The service for a classifier's model. Raises ValueError if the model or the folder cannot be used.

    Args:
        classifier: A classifier of drawings.
        folder: The folder that stores the tasks.
        limits: The limits of the server.
        hosts: Further names of this server. Localhost and plain addresses are always accepted.
        token: The token that clients must send. None if no token is needed.
        model: The model name that clients see. By default, the classifier's.
        encoders: Classifiers for tasks of other kinds, "photos" and "text". Each is opened when it is first needed.
        access: The teacher's token and the phones' key. Makes this the server of a classroom; `token` is not used.
    """
    limits = limits or Limits()
    store = Store(folder)
    try:
        tasks = Tasks(Kinds(classifier, encoders or {}), store, limits)
        classroom = None if access is None else Classroom(access, tasks)
    except ServiceError as error:  # no room for the task of a class
        store.close()
        raise ValueError(f"{folder}: {error.message}; {error.remedy}") from error
    except BaseException:
        store.close()
        raise
    token = token if access is None else access.teacher
    workers, metrics = Workers(limits), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()
        store.close()

    app = FastAPI(title="csn", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=lifespan)
    add_handlers(app)
    app.include_router(router(tasks, workers, model or classifier.model, classroom))

    _add_status(app, store, tasks, workers, metrics)
    for address, file in (("/", "index.html"), ("/docs", "docs.html"), ("/favicon.ico", "icon.svg")):
        app.add_api_route(address, _file(file), include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    _describe_inputs(app)
    app.add_middleware(Guard, limits=limits, metrics=metrics, hosts=hosts, token=token, classroom=classroom)
    return app


def _add_status(app: FastAPI, store: Store, tasks: Tasks, workers: Workers, metrics: Metrics) -> None:
    """Add the addresses that say how the server is."""

    @app.get("/health", tags=["server"])
    async def health() -> dict[str, str]:
        """Check that the server answers and that its storage can be read."""
        await workers.run(store.totals)
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", tags=["server"], response_class=PlainTextResponse)
    async def measured() -> PlainTextResponse:
        """Counts and times in the Prometheus text format."""
        totals = await workers.run(store.totals)
        text = metrics.text(*totals, workers.busy, tasks.done)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _file(name: str):  # type: ignore[no-untyped-def]
    async def page() -> FileResponse:
        return FileResponse(PAGE / name)

    return page


def _describe_inputs(app: FastAPI) -> None:
    """Add the bodies that FastAPI does not parse to the OpenAPI description."""
    document = app.openapi()
    known = document["components"]["schemas"]
    for model in (schemas.Input, schemas.LabelledInput):
        known[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
