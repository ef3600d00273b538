"""What a plan answers, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.capacity.machine import Machine
from pellucid.capacity.memory import Fit
from pellucid.capacity.subject import Subject
from pellucid.capacity.wishes import Wishes
from pellucid.simulate.answers import Question, TokenCost
from pellucid.simulate.summary import Point


@dataclass(frozen=True)
class Load:
    """A point of the curve: requests a second of all replicas, and what comes of it."""

    rate: float
    point: Point
    stable: bool
    cost: TokenCost | None


@dataclass(frozen=True)
class WhatIf:
    """A change: what saturates one replica with it, the same load with it, and why it could not be
    simulated where it could not."""

    change: str
    saturation: float | None = None
    point: Point | None = None
    cost: TokenCost | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Report:
    """`saturation`: requests a second of one replica that is never idle (`crowd`); `alone`: one
    user. `chosen`: the load looked at closely, by `replicas`. within_goals: the most requests a
    second of one replica that meet the goals. tried: replicas that were tried, and whether they
    meet the goals."""

    wishes: Wishes
    subject: Subject
    machine: Machine
    fit: Fit
    question: Question
    saturation: float
    crowd: Point
    alone: Point
    replicas: int
    curve: tuple[Load, ...]
    chosen: Load
    met: bool
    crowd_cost: TokenCost | None
    within_goals: float | None = None
    tried: tuple[tuple[int, bool], ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    warnings: tuple[str, ...] = ()
