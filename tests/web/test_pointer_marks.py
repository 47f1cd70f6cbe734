"""Where an action pointed, from what the environment recorded or, failing that, from what the policy said."""

from quartet.actions.taken import taken, taken_action
from quartet.types import Pointer, TakenAction
from quartet.types.frame import Element, Point, Resized, Unit
from quartet.web.pointer_marks import marks_of


def test_recorded_points_come_before_the_coordinates_of_the_action():
    (mark,) = marks_of([taken_action("click (80,120)", points=[(81.0, 119.0)])])
    assert (mark.points, mark.frame, mark.words) == ([(81.0, 119.0)], None, "clicked at (81, 119)")
    (mark,) = marks_of([taken_action("click (80,120)", "covered")])
    assert (mark.points, mark.frame, mark.words) == ([(80.0, 120.0)], None, "not done: clicked at (80, 120)")


def test_coordinates_keep_the_frame_in_which_they_were_said():
    for frame, size in ((Unit(1000), (1000, 1000)), (Resized(640, 480), (640, 480))):
        (mark,) = marks_of([taken(Pointer(gesture="click", places=[Point(5, 7, frame)]), "refused")])
        assert (mark.points, mark.frame) == ([(5, 7)], size)
        assert mark.words == f"not done: clicked at (5, 7) of {size[0]} × {size[1]}"


def test_words_name_the_gesture():
    ends = [(1.0, 2.0), (3.0, 4.0)]
    drag, scroll, old = marks_of(
        [
            taken(Pointer(gesture="drag", places=[Element("1"), Element("2")]), points=ends),
            taken(Pointer(gesture="scroll", scrolled=(-2, 1)), points=ends[:1]),
            TakenAction(canonical="type here", points=ends[:1]),
        ]
    )
    assert drag.words == "dragged from (1, 2) to (3, 4)"
    assert (scroll.words, scroll.scrolled) == ("scrolled left at (1, 2)", (-2, 1))
    assert old.words == "clicked at (1, 2)"


def test_an_action_without_a_known_place_has_no_mark():
    half = Pointer(gesture="drag", places=[Element("1"), Element("2")])
    assert marks_of([taken(half, "no element [2]"), taken_action("key Enter"), taken_action("?", "no action")]) == []
