"""Session of the shop: the agent calls tools or speaks to the customer, until the customer ends the dialogue."""

from collections.abc import Sequence

from quartet.actions.grammar import parse_calls
from quartet.actions.malformed_call import refused_call
from quartet.actions.taken import canonical
from quartet.env.base import AGENT, SPEAKER, USER
from quartet.env.retail.customer import STOP, instructions, scripted_answer
from quartet.env.retail.shop import TOOLS, RefusedError
from quartet.env.retail.tasks import Scenario, scenario_of
from quartet.errors import EnvError
from quartet.types import (
    Action,
    Done,
    Message,
    Observation,
    Outcome,
    StepResult,
    TakenAction,
    Task,
    Text,
    ToolCall,
)

RULES = """You are the agent of a shop. Write a call of a tool, or a message to the customer.
First ask for name and zip code and find the customer. Then ask for what you need, and do what the customer wants.
Only a pending order can be cancelled or sent to another address; only items of a delivered order can be returned.
When all is done, tell the customer without a question."""


class RetailSession:
    """One session. With `policy_as_user` the answers to the agent's messages are the next steps of the session."""

    def __init__(self, *, policy_as_user: bool) -> None:
        self._policy_as_user = policy_as_user
        self._scenario: Scenario | None = None

    async def reset(self, task: Task) -> Observation:
        """Show the agent the rules, the tools and the customer's first message."""
        self._scenario = scenario_of(task)
        self._shop, self._said = self._scenario.shop.copy(), list[str]()
        self._user_speaks = self._user_has_spoken = False
        opening = [Message("system", RULES), Message("user", self._scenario.opening)]
        return Observation(goal="", text="", messages=opening, tools=TOOLS)

    async def step(self, action: str) -> StepResult:
        """Perform calls in Quartet's grammar. A call that cannot be read is refused; any other text is a message of the
        one who speaks."""
        if self._user_speaks:
            return self._answered(action)
        if calls := parse_calls(action):
            return await self.act(calls)
        return refused_call(action) or await self.act([Text(text=action)])

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the calls of the agent's response in order, until it speaks to the customer."""
        if self._scenario is None:
            raise EnvError("the shop was used before the first reset", "call reset(task) first")
        messages, records = [], []
        for action in actions:
            if not isinstance(action, ToolCall):
                return self._speak(self._scenario, action, records)
            try:
                result, error = self._shop.call(action.name, action.arguments), ""
            except RefusedError as refused:
                result, error = f"error: {refused}", str(refused)
            messages.append(Message("tool", result, action.name))
            outcome = Outcome.REFUSED if error else Outcome.DONE
            records.append(TakenAction(action=action, canonical=canonical(action), outcome=outcome, error=error))
        return _continued(messages, AGENT, records)

    async def close(self) -> None:
        """Release nothing."""

    def _speak(self, scenario: Scenario, action: Action, records: list[TakenAction]) -> StepResult:
        """Say a message of the agent to the customer."""
        match action:
            case Text(text=text) | Done(answer=text):
                pass
            case _:
                text = canonical(action)
        self._said.append(text)
        records = [*records, TakenAction(action=action, canonical=text)]
        if self._policy_as_user:
            self._user_speaks = True
            heard = [Message("user", text)]
            if not self._user_has_spoken:
                heard = [Message("system", instructions(scenario)), Message("assistant", scenario.opening), *heard]
            self._user_has_spoken = True
            return _continued(heard, USER, records)
        answer = scripted_answer(scenario, text)
        return (
            self._ended(scenario, records) if answer is None else _continued([Message("user", answer)], AGENT, records)
        )

    def _answered(self, text: str) -> StepResult:
        """Give the agent what the policy in the customer's place says."""
        assert self._scenario is not None
        self._user_speaks = False
        record = TakenAction(action=Text(text=text), canonical=text)
        if STOP in text:
            return self._ended(self._scenario, [record])
        return _continued([Message("user", text)], AGENT, [record])

    def _ended(self, scenario: Scenario, records: list[TakenAction]) -> StepResult:
        """Reward the end of the dialogue: 1 if shop and messages are as the customer wants."""
        said = _plain(" ".join(self._said))
        success = self._shop == scenario.goal and all(_plain(output) in said for output in scenario.outputs)
        return StepResult(
            observation=Observation(goal="", text=""),
            reward=float(success),
            terminated=True,
            info={"success": success},
            actions=records,
        )


def _plain(text: str) -> str:
    """Return a text without case and commas, in which outputs are compared."""
    return text.lower().replace(",", "")


def _continued(messages: list[Message], speaker: str, records: list[TakenAction]) -> StepResult:
    seen = Observation(goal="", text="", messages=messages)
    return StepResult(observation=seen, reward=0.0, terminated=False, info={SPEAKER: speaker}, actions=records)
