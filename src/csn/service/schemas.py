"""What goes in and out, as OpenAPI describes it at /docs."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timezone
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, FiniteFloat

from csn.classifier.explanation import Explanation
from csn.service.store import Example, Record


class _FirstOnly(FailFast):
    """Stop at the first bad item: a million bad pixels are no more wrong than one. Hashable, as unions need it."""

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


class NewTask(BaseModel):
    """A task to be."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("Untitled", description="shown in lists; need not be unique")


class Drawing(BaseModel):
    """A drawing, as `image` or as `pixels`; dark on light or light on dark, any size within the limits."""

    model_config = ConfigDict(extra="forbid")

    image: str | None = Field(None, description="PNG file as base64, also as a data URL")
    pixels: Pixels | None = Field(None, description="rows of grey levels, 0 to 1 or 0 to 255")


class LabelledDrawing(Drawing):
    """A drawing and what it shows."""

    label: str = Field(description="any script; spaces around it are cut off", examples=["star"])


class TaskSummary(BaseModel):
    """A task in a list."""

    id: str
    name: str
    created: datetime
    changed: datetime
    examples: int
    classes: int


class ClassView(BaseModel):
    """A class and its examples, oldest first."""

    label: str
    examples: list[str] = Field(description="ids")


class TaskView(TaskSummary):
    """A task: its classes in the order in which they were first met."""

    labels: list[ClassView]
    can_undo: bool

    @classmethod
    def of(cls, record: Record) -> TaskView:
        """A record as clients see it."""
        found = record.classes
        return cls(
            id=record.id,
            name=record.name,
            created=datetime.fromtimestamp(record.created, timezone.utc),
            changed=datetime.fromtimestamp(record.changed, timezone.utc),
            examples=len(record.examples),
            classes=len(found),
            labels=[ClassView(label=label, examples=[e.id for e in some]) for label, some in found.items()],
            can_undo=bool(record.history),
        )


class ExampleView(BaseModel):
    """A remembered drawing."""

    id: str
    label: str
    picture: str = Field(description="PNG as a data URL, black ink on transparent paper")

    @classmethod
    def of(cls, example: Example) -> ExampleView:
        """An example as clients see it."""
        data = b64encode(example.picture).decode()
        return cls(id=example.id, label=example.label, picture=f"data:image/png;base64,{data}")


class Learned(BaseModel):
    """What became of a drawing that was to be learned."""

    example: ExampleView
    task: TaskView


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class Prediction(BaseModel):
    """What a drawing is. label is null when it is like nothing remembered: `similarity` is below the threshold."""

    label: str | None
    similarity: float = Field(description="best cosine between the drawing's key and a remembered one")
    probabilities: list[ClassProbability] = Field(description="of every class, largest first; they sum to one")

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
    """A remembered example and the attention it got."""

    id: str
    label: str
    weight: float


class ExplainedPrediction(Prediction):
    """A prediction and the examples it came from, largest weight first; weights sum to one."""

    examples: list[SourceView]


class AlphabetView(BaseModel):
    """A sample alphabet."""

    name: str
    labels: list[str]
    pictures: list[str] = Field(description="one drawing of each character, PNG as a data URL")


class About(BaseModel):
    """The server: its version, model and limits."""

    version: str
    model: str
    way: int = Field(description="classes told apart in one match; more of them hold a tournament")
    unknown_threshold: float | None
    limits: dict[str, float]
