"""Program that performs actions in a guest. Quartet sends it unchanged, with the actions as JSON in its argument.

No text of a policy becomes a part of the program. It needs PyAutoGUI, which every OSWorld guest has.
"""

import json
import sys
import time

import pyautogui  # type: ignore[import-not-found]

pyautogui.FAILSAFE = False
pyautogui.PAUSE = 0.02


def write(text):
    """Type a text. Every `<` is a key press of its own."""
    for number, part in enumerate(text.split("<")):
        if number:
            press(["<"])
        if part:
            pyautogui.write(part, interval=0.01)


def names(keys):
    """Return PyAutoGUI's names of keys. It would press a key for `<` that types `>` on a US keyboard."""
    return [name for key in keys for name in (("shift", ",") if key == "<" else (key,))]


def press(keys):
    """Press keys together."""
    pyautogui.hotkey(*names(keys))


def release(keys):
    """Release all buttons, and the keys, whether they are down or not."""
    for button in ("left", "middle", "right"):
        pyautogui.mouseUp(button=button, _pause=False)
    for key in names(keys):
        pyautogui.keyUp(key, _pause=False)


def drag(x, y):
    """Drag from the pointer's position to a point."""
    pyautogui.mouseDown()
    pyautogui.moveTo(x, y, duration=0.3)
    pyautogui.mouseUp()


def scroll(right, down):
    """Turn the wheel by steps."""
    pyautogui.scroll(-down)
    pyautogui.hscroll(right)


def each(function, keys):
    """Call a function for each key."""
    for key in keys:
        function(key)


ACTIONS = {
    "click": lambda given: pyautogui.click(button=given["button"], clicks=given["count"], interval=0.05),
    "down": lambda _: pyautogui.mouseDown(),
    "up": lambda _: pyautogui.mouseUp(),
    "drag": lambda given: drag(given["to_x"], given["to_y"]),
    "scroll": lambda given: scroll(given["right"], given["down"]),
    "type": lambda given: write(given["text"]),
    "key": lambda given: press(given["keys"]),
    "key_down": lambda given: each(pyautogui.keyDown, names(given["keys"])),
    "key_up": lambda given: each(pyautogui.keyUp, reversed(names(given["keys"]))),
    "release": lambda given: release(given["keys"]),
    "wait": lambda given: time.sleep(given["seconds"]),
    "move": lambda _: None,
}
"""Function for each kind of action. The pointer is moved before, if the action has a place."""

for action in json.loads(sys.argv[1]):
    if "x" in action:
        pyautogui.moveTo(action["x"], action["y"])
    ACTIONS[action["do"]](action)
