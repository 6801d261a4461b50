"""The inputs and outputs of the API. /docs shows these descriptions."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, FiniteFloat

from csn.classifier.explanation import Explanation
from csn.service.images import SIGNATURE, is_picture
from csn.service.store import Example, Record


class _FirstOnly(FailFast):
    """Stop validation at the first bad item, because one bad pixel is enough. Hashable, as unions require."""

    __hash__ = object.__hash__


Pixels = Annotated[list[Annotated[list[FiniteFloat], _FirstOnly()]], _FirstOnly()]


class ErrorBody(BaseModel):
    """What is wrong, and what to do about it."""

    code: str = Field(examples=["no_such_task"])
    message: str
    remedy: str


class ErrorAnswer(BaseModel):
    """Every answer that is not 2xx."""

    error: ErrorBody


Kind = Literal["drawings", "photos", "text"]


class NewTask(BaseModel):
    """A task to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("Untitled", description="shown in lists; need not be unique")
    kind: Kind = Field("drawings", description="type of its examples; /api/about lists the kinds of this server")


class Input(BaseModel):
    """A drawing as `image` or `pixels` (dark on light or light on dark), a photograph as `image`, a sentence as `text`.

    The `kind` of a task says which of them it takes. Pictures may have any size within the limits.
    """

    model_config = ConfigDict(extra="forbid")

    image: str | None = Field(None, description="PNG file (photographs also JPEG or WebP) as base64 or a data URL")
    pixels: Pixels | None = Field(None, description="rows of a drawing's grey levels, 0 to 1 or 0 to 255")
    text: str | None = Field(None, description="a sentence", examples=["book a flight to rome"])


class LabelledInput(Input):
    """An input and its label."""

    label: str = Field(description="any script; surrounding spaces are removed", examples=["star"])


class TaskSummary(BaseModel):
    """A task in a list."""

    id: str
    name: str
    kind: Kind
    created: datetime
    changed: datetime
    examples: int
    classes: int


class ClassView(BaseModel):
    """A class and its examples, oldest first."""

    label: str
    examples: list[str] = Field(description="ids")


class TaskView(TaskSummary):
    """A task, with its classes in the order in which they were first learned."""

    labels: list[ClassView]
    can_undo: bool

    @classmethod
    def of(cls, record: Record) -> TaskView:
        """The client's view of a record."""
        found = record.classes
        return cls(
            id=record.id,
            name=record.name,
            kind=record.kind,  # type: ignore[arg-type]
            created=datetime.fromtimestamp(record.created, timezone.utc),
            changed=datetime.fromtimestamp(record.changed, timezone.utc),
            examples=len(record.examples),
            classes=len(found),
            labels=[ClassView(label=label, examples=[e.id for e in some]) for label, some in found.items()],
            can_undo=bool(record.history),
        )


class ExampleView(BaseModel):
    """A remembered example with its picture or its text."""

    id: str
    label: str
    picture: str | None = Field(
        description="data URL. Drawings: PNG, black ink on transparent paper. Photographs: JPEG."
    )
    text: str | None = Field(description="the sentence, or the name of an imported photograph")

    @classmethod
    def of(cls, example: Example) -> ExampleView:
        """The client's view of an example."""
        if not is_picture(example.picture):
            return cls(id=example.id, label=example.label, picture=None, text=example.picture.decode())
        kind, data = "png" if example.picture.startswith(SIGNATURE) else "jpeg", b64encode(example.picture).decode()
        return cls(id=example.id, label=example.label, picture=f"data:image/{kind};base64,{data}", text=None)


class Learned(BaseModel):
    """The result of learning an input."""

    example: ExampleView
    task: TaskView


class Waits(BaseModel):
    """A drawing from a phone whose name the teacher has not let in yet."""

    waits: Literal[True]


class WaitingName(BaseModel):
    """A name that waits for the teacher, and its drawings."""

    label: str
    pictures: list[str] = Field(description="PNG as data URLs")


class Door(BaseModel):
    """How phones come in: they open `address` and give `key`, or read both from `qr`."""

    address: str
    key: str
    qr: str = Field(description="SVG as a data URL")


class ClassroomView(BaseModel):
    """A class. Phones see neither what waits nor the door."""

    task: str
    changed: float = Field(description="seconds since 1970; it grows with every change of the task")
    waiting: list[WaitingName] | None = None
    door: Door | None = None


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class Prediction(BaseModel):
    """The answer for an input. label is null if the input is unknown: its `similarity` is below the threshold."""

    label: str | None
    similarity: float = Field(description="how well the input fits its best class")
    probabilities: list[ClassProbability] = Field(description="one per class, largest first; they sum to one")

    @staticmethod
    def parts(found: Explanation) -> dict[str, Any]:
        """The fields, from the classifier's explanation."""
        ranked = sorted(found.probabilities.items(), key=lambda item: -item[1])
        return {
            "label": found.label,
            "similarity": found.similarity,
            "probabilities": [ClassProbability(label=label, probability=value) for label, value in ranked],
        }


class SourceView(BaseModel):
    """A remembered example and its weight in the answer."""

    id: str
    label: str
    weight: float


class ExplainedPrediction(Prediction):
    """A prediction and the examples that it came from, largest weight first. Weights sum to one."""

    examples: list[SourceView]


class LayerView(BaseModel):
    """Activations of an adapted hidden layer, one number per unit or filter."""

    before: list[float]
    after: list[float]


class ShiftedClass(BaseModel):
    """A class and its probability before and after the shifts."""

    label: str
    before: float
    after: float


class ShiftsView(BaseModel):
    """The effect of the recalled examples on the network's neurons (eq. 1). The most probable class comes first."""

    layers: list[LayerView]
    classes: list[ShiftedClass]


class AlphabetView(BaseModel):
    """A sample alphabet."""

    name: str
    labels: list[str]
    pictures: list[str] = Field(description="one drawing of each character: PNG as a data URL")


class About(BaseModel):
    """The server: its version, model and limits."""

    version: str
    model: str
    kinds: list[Kind] = Field(description="kinds of task that this server supports")
    way: int = Field(description="classes separated in one match; more classes play a tournament")
    unknown_threshold: float | None
    limits: dict[str, float]
    role: Literal["teacher", "phone"] | None = Field(None, description="of who asks, if the server is that of a class")
