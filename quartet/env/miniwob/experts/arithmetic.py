"""Experts for pages that ask for the result of a sum, a difference or a product."""

from .goal import parts
from .page import Page, click, fill


def sum_or_product(goal: str, page: Page) -> str:
    """simple-arithmetic: the field's label is the problem, such as `3 x 4 =`."""
    field = page.find("input")
    one, sign, other = parts(r"(\d+) ([-+x]) (\d+) =", field.label)
    results = {"+": int(one) + int(other), "-": int(one) - int(other), "x": int(one) * int(other)}
    return fill(field, str(results[sign])) or click(page.find("button", "Submit"))


def equation(goal: str, page: Page) -> str:
    """simple-algebra: `x - 3 = 20`, or `3 + x = 20`."""
    left, sign, right, result = parts(r"(x|\d+) ([-+]) (x|\d+) = (\d+)", page.find("text").label)
    known = int(right if left == "x" else left)
    if sign == "-" and left == "x":
        solution = int(result) + known
    else:
        solution = (int(result) - known) * (1 if sign == "+" else -1)
    return fill(page.find("input"), str(solution)) or click(page.find("button", "Submit"))
