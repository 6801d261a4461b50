"""The HTTP API: each address calls a method of `Tasks`, which `Workers` run."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from csn import __version__
from csn.classifier.explanation import Explanation
from csn.service import samples, schemas
from csn.service.bodies import Sent, file_body, input_body
from csn.service.classroom import PHONE, Classroom
from csn.service.errors import ServiceError
from csn.service.images import ink_png
from csn.service.store import Example, Record
from csn.service.tasks import Tasks
from csn.service.workers import Workers

TASK_FILE = "application/x-csn-task"
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,64}$",
        description="any text that the client chooses: a request sent again with the same key is carried out once",
    ),
]


def router(tasks: Tasks, workers: Workers, model: str, classroom: Classroom | None = None) -> APIRouter:
    """Every address under /api; those of a class only where there is one."""
    errors = {"4XX": {"model": schemas.ErrorAnswer}, "5XX": {"model": schemas.ErrorAnswer}}
    api = APIRouter(prefix="/api", responses=errors)  # type: ignore[arg-type]

    _add_server(api, tasks, model)
    _add_tasks(api, tasks, workers, classroom)
    _add_examples(api, tasks, workers, classroom)
    _add_recognition(api, tasks, workers)
    _add_files(api, tasks, workers)
    _add_samples(api, tasks, workers)
    if classroom is not None:
        _add_classroom(api, classroom, workers)
    return api


def _add_server(api: APIRouter, tasks: Tasks, model: str) -> None:
    """Add the address that describes this server."""

    @api.get("/about", tags=["server"])
    async def about(request: Request) -> schemas.About:
        """Version, model and limits of this server."""
        classifier = tasks.kinds.drawings
        return schemas.About(
            version=__version__,
            model=model,
            role=request.scope.get("role"),
            kinds=tasks.kinds.names,  # type: ignore[arg-type]
            way=classifier.learner_.way,
            unknown_threshold=classifier.threshold(),
            limits=dataclasses.asdict(tasks.limits),
        )


def _add_tasks(api: APIRouter, tasks: Tasks, workers: Workers, classroom: Classroom | None) -> None:
    """Add the addresses of tasks."""

    @api.post("/tasks", status_code=201, tags=["tasks"])
    async def create_task(new: schemas.NewTask) -> schemas.TaskView:
        """Create a task that remembers nothing yet."""
        return schemas.TaskView.of(await workers.run(tasks.create, new.name, new.kind))

    @api.get("/tasks", tags=["tasks"])
    async def list_tasks() -> list[schemas.TaskSummary]:
        """All tasks, the latest change first."""
        return [schemas.TaskSummary(**row) for row in await workers.run(tasks.store.rows)]

    @api.get("/tasks/{task}", tags=["tasks"])
    async def read_task(task: str) -> schemas.TaskView:
        """A task with its classes."""
        return schemas.TaskView.of(await workers.run(tasks.view, task))

    @api.delete("/tasks/{task}", status_code=204, tags=["tasks"])
    async def delete_task(task: str) -> None:
        """Delete a task with all that is in it. This cannot be undone. The task of a class is kept (409)."""
        if classroom is not None:
            classroom.check_kept(task)
        await workers.run(tasks.delete, task)

    @api.post("/tasks/{task}/undo", tags=["tasks"])
    async def undo(task: str) -> schemas.TaskView:
        """Undo the latest change: an example or alphabet that was added, or an example or class that was removed."""
        return schemas.TaskView.of(await workers.run(tasks.undo, task))


def _add_examples(api: APIRouter, tasks: Tasks, workers: Workers, classroom: Classroom | None) -> None:
    """Add the addresses of examples and classes."""

    @api.get("/tasks/{task}/examples", tags=["examples"])
    async def list_examples(task: str) -> list[schemas.ExampleView]:
        """Every remembered example, oldest first."""
        record = await workers.run(tasks.view, task)
        return [schemas.ExampleView.of(example) for example in record.examples]

    @api.post(
        "/tasks/{task}/examples",
        status_code=201,
        tags=["examples"],
        openapi_extra=input_body(schemas.LabelledInput),
    )
    async def add_example(
        request: Request,
        response: Response,
        task: str,
        label: Annotated[str | None, Query(description="the label, if the body is not JSON")] = None,
        key: Key = None,
    ) -> schemas.Learned | schemas.Waits:
        """Learn a drawing, photograph or sentence in one forward pass. A new label creates a class.

        In a classroom, a drawing with a new label from a phone waits for the teacher (202).
        """
        sent = await Sent.of(request)

        def add() -> tuple[Record, Example] | None:
            item, name = sent.labelled(tasks.kind(task), tasks.limits, label)
            if classroom is not None and request.scope["role"] == PHONE:
                return classroom.offer(item, name, key, request.client.host if request.client else "")
            return tasks.add(task, item, name, key)

        learned = await workers.run(add)
        if learned is None:
            response.status_code = 202
            return schemas.Waits(waits=True)
        record, example = learned
        return schemas.Learned(example=schemas.ExampleView.of(example), task=schemas.TaskView.of(record))

    @api.delete("/tasks/{task}/examples/{example}", tags=["examples"])
    async def remove_example(task: str, example: str) -> schemas.TaskView:
        """Forget an example exactly. From then on, answers are as if it had never been learned."""
        return schemas.TaskView.of(await workers.run(tasks.remove, task, example=example))

    @api.get("/tasks/{task}/classes", tags=["examples"])
    async def list_classes(task: str) -> list[schemas.ClassView]:
        """Every class with the ids of its examples, in the order in which the classes were first learned."""
        return schemas.TaskView.of(await workers.run(tasks.view, task)).labels

    @api.delete("/tasks/{task}/classes", tags=["examples"])
    async def remove_class(task: str, label: str) -> schemas.TaskView:
        """Forget a class and all its examples exactly."""
        return schemas.TaskView.of(await workers.run(tasks.remove, task, label=label))


def _add_recognition(api: APIRouter, tasks: Tasks, workers: Workers) -> None:
    """Add the addresses that recognise inputs."""

    @api.post("/tasks/{task}/predict", tags=["recognise"], openapi_extra=input_body(schemas.Input))
    async def predict(request: Request, task: str) -> schemas.Prediction:
        """Recognise an input."""
        sent = await Sent.of(request)

        def work() -> Explanation:
            return tasks.explain(task, sent.input(tasks.kind(task), tasks.limits), sources=False)[0]

        found = await workers.run(work)
        return schemas.Prediction(**schemas.Prediction.parts(found))

    @api.post("/tasks/{task}/explain", tags=["recognise"], openapi_extra=input_body(schemas.Input))
    async def explain(request: Request, task: str) -> schemas.ExplainedPrediction:
        """Recognise an input, and list the remembered examples that decided the answer."""
        sent = await Sent.of(request)
        found, record = await workers.run(lambda: tasks.explain(task, sent.input(tasks.kind(task), tasks.limits)))
        sources = [
            schemas.SourceView(id=record.examples[s.index].id, label=s.label, weight=s.weight) for s in found.sources
        ]
        return schemas.ExplainedPrediction(**schemas.Prediction.parts(found), examples=sources)

    @api.post("/tasks/{task}/shifts", tags=["recognise"], openapi_extra=input_body(schemas.Input))
    async def shifts(request: Request, task: str) -> schemas.ShiftsView:
        """Activations of the adapted layers before and after a drawing's shifts."""
        sent = await Sent.of(request)
        found = await workers.run(lambda: tasks.shifts(task, sent.input(tasks.kind(task), tasks.limits)))
        return schemas.ShiftsView(
            layers=[schemas.LayerView(before=list(one.before), after=list(one.after)) for one in found.layers],
            classes=[
                schemas.ShiftedClass(label=str(label), before=before, after=after)
                for label, (before, after) in found.classes.items()
            ],
        )


def _add_files(api: APIRouter, tasks: Tasks, workers: Workers) -> None:
    """Add the addresses of task files."""

    @api.get("/tasks/{task}/file", tags=["files"], response_class=Response)
    async def export_task(task: str) -> Response:
        """The task as one small file, which `FewShotClassifier.load` and `csn predict` can also read."""
        content = await workers.run(tasks.export, task)
        return Response(
            content, media_type=TASK_FILE, headers={"Content-Disposition": 'attachment; filename="task.csn"'}
        )

    @api.post("/tasks/file", status_code=201, tags=["files"], openapi_extra=file_body(TASK_FILE))
    async def import_task(request: Request, name: str = "Imported") -> schemas.TaskView:
        """Create a task from a task file that was made with the same model."""
        content = await request.body()
        return schemas.TaskView.of(await workers.run(tasks.import_file, content, PurePath(name).stem or "Imported"))


def _add_samples(api: APIRouter, tasks: Tasks, workers: Workers) -> None:
    """Add the addresses of sample alphabets."""

    @api.get("/alphabets", tags=["samples"])
    async def list_alphabets() -> list[schemas.AlphabetView]:
        """List the sample alphabets: drawings of things, to copy by hand."""
        found = await workers.run(samples.alphabets)
        return [
            schemas.AlphabetView(
                name=name,
                labels=[sample.label for sample in some[:: samples.DRAWINGS]],
                pictures=[_data_url(sample) for sample in some[:: samples.DRAWINGS]],
            )
            for name, some in found.items()
        ]

    @api.post("/tasks/{task}/alphabets/{name}", status_code=201, tags=["samples"])
    async def add_alphabet(task: str, name: str, key: Key = None) -> schemas.TaskView:
        """Learn a sample alphabet. The task must be of drawings."""
        found = (await workers.run(samples.alphabets)).get(name)
        if found is None:
            raise ServiceError(404, "no_such_alphabet", "there is no such alphabet", "list the alphabets first")
        examples = [tasks.known(sample.label, sample.x) for sample in found]
        keys = {} if key is None else {key: [example.id for example in examples]}
        return schemas.TaskView.of(await workers.run(tasks.add_known, task, examples, keys))


def _add_classroom(api: APIRouter, room: Classroom, workers: Workers) -> None:
    """A class: its task, and the names that wait for the teacher."""
    qr = room.access.qr()

    @api.get("/classroom", tags=["classroom"])
    async def read_classroom(request: Request) -> schemas.ClassroomView:
        """The task of the class and when it last changed; for the teacher also what waits, and how phones come in."""
        record = await workers.run(room.tasks.view, room.task)
        if request.scope["role"] == PHONE:
            return schemas.ClassroomView(task=room.task, changed=record.changed)
        waiting = [
            schemas.WaitingName(label=label, pictures=[str(schemas.ExampleView.of(one).picture) for one in some])
            for label, some in room.waiting.items()
        ]
        door = schemas.Door(address=room.access.address, key=room.access.phones, qr=qr)
        return schemas.ClassroomView(task=room.task, changed=record.changed, waiting=waiting, door=door)

    @api.post("/classroom/pass", tags=["classroom"])
    async def let_pass(label: str) -> schemas.TaskView:
        """Learn the drawings that wait under a name. From then on phones may use it."""
        return schemas.TaskView.of(await workers.run(room.let_pass, label))

    @api.post("/classroom/refuse", status_code=204, tags=["classroom"])
    async def refuse(label: str) -> None:
        """Throw away the drawings that wait under a name. Phones cannot offer it again."""
        await workers.run(room.refuse, label)


def _data_url(sample: samples.Sample) -> str:
    return "data:image/png;base64," + b64encode(ink_png(sample.x[0].numpy())).decode()
