"""The vocabulary of Quartet as typed records. Read the modules of this package in this order:

1. `task`: a **task** is attempted in an environment, which returns observations.
2. `call`: every model response comes from one **call** with a `prompt`. The call is recorded with its exact tokens
   (`tokens`). Some prompt tokens are placeholders of a `picture`.
3. `trajectory`: one attempt is a **rollout**, a sequence of **turns** (observation, response, `action`s at places in a
   `frame`). The record of a rollout is its **trajectory**.
4. `plan`: the rollouts of one task that are compared with each other form a **group**. Control plans the group; a
   worker holds a **lease** on each rollout that it runs. A rollout may begin inside another one, at a `fork`.
5. `batch`: groups trained together are a **batch**. Its train step produces the next **policy**.
6. `states`: the state machines of rollouts, groups and batches.
7. `ancestry`: the number of train steps between two policy versions, the **lag**.

Comments give the shapes of lists.
"""

from quartet.types.action import (
    Action,
    Done,
    Infeasible,
    Keyboard,
    Outcome,
    Pointer,
    TakenAction,
    Text,
    ToolCall,
    Wait,
)
from quartet.types.ancestry import Ancestry
from quartet.types.batch import Batch, Group, GroupMember, MemberUse, Policy, ReplayRule
from quartet.types.call import LARGEST_TEMPERATURE, MAIN, Call, FinishReason, Sampling
from quartet.types.fork import Beginning, EpisodeState, Fork, Move
from quartet.types.message import Function, Message, Tool
from quartet.types.picture import Media, Picture
from quartet.types.plan import Purpose, RolloutLease, RolloutPlan, Root, Round
from quartet.types.prompt import Prompt
from quartet.types.states import (
    EQUAL_REWARDS,
    TOO_FEW_COUNTABLE,
    BatchState,
    GroupState,
    OnLate,
    RolloutState,
    ScheduleName,
)
from quartet.types.task import ACTIONS_LEFT, GENERATED, Observation, StepResult, Task
from quartet.types.tokens import TokenColumns
from quartet.types.trajectory import Status, Trajectory, Turn

__all__ = [
    "ACTIONS_LEFT",
    "EQUAL_REWARDS",
    "GENERATED",
    "LARGEST_TEMPERATURE",
    "MAIN",
    "TOO_FEW_COUNTABLE",
    "Action",
    "Ancestry",
    "Batch",
    "BatchState",
    "Beginning",
    "Call",
    "Done",
    "EpisodeState",
    "FinishReason",
    "Fork",
    "Function",
    "Group",
    "GroupMember",
    "GroupState",
    "Infeasible",
    "Keyboard",
    "Media",
    "MemberUse",
    "Message",
    "Move",
    "Observation",
    "OnLate",
    "Outcome",
    "Picture",
    "Pointer",
    "Policy",
    "Prompt",
    "Purpose",
    "ReplayRule",
    "RolloutLease",
    "RolloutPlan",
    "RolloutState",
    "Root",
    "Round",
    "Sampling",
    "ScheduleName",
    "Status",
    "StepResult",
    "TakenAction",
    "Task",
    "Text",
    "TokenColumns",
    "Tool",
    "ToolCall",
    "Trajectory",
    "Turn",
    "Wait",
]
