"""Small curve of success for a table cell, as the path of an SVG element."""

from collections.abc import Sequence

from quartet.web.queries.tasks import Point

WIDTH, HEIGHT = 160, 32


def path_of(points: Sequence[Point], last_step: int) -> str:
    """Return the path of success (0 to 1, upwards) over train steps (0 to `last_step`).

    A single point becomes a short line; without points the path is empty.
    """
    steps = max(last_step, 1)
    places = [(WIDTH * point.train_step / steps, HEIGHT * (1 - point.success)) for point in points]
    if len(places) == 1:
        places.append((places[0][0] + 2, places[0][1]))
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places) if places else ""
