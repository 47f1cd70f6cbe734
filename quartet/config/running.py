"""Knobs of a run as a whole: evaluation, processes, what is kept and where."""

from typing import Annotated, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Positive, PositiveFloat, Section

SELECTION_OFFSET = 500_000
"""Distance between the first seed that results are reported on and the first selection seed."""


class Evaluation(Section):
    """Held-out evaluation: seeds that training never draws."""

    train_steps_per_evaluation: Annotated[int, Field(ge=0)] = 0
    """Evaluate every this many train steps, on selection seeds, and mark the best policy; 0 means only before and
    after."""
    episodes_per_family: Annotated[int, Field(gt=0, le=SELECTION_OFFSET)] = 20
    """Episodes per family of the evaluations before and after training."""
    episodes_per_family_during: Annotated[int, Field(gt=0, le=SELECTION_OFFSET)] = 4
    """Episodes per family of the evaluations during training."""
    first_seed: Annotated[int, Field(ge=0)] = 1_000_000
    """Held-out seeds start here; a recipe whose training seeds reach it is refused. Success before and after training
    is reported on the first ones. Evaluations during training, which choose the best policy, take selection seeds:
    those from 500,000 further on, so that no policy is reported on the seeds that chose it."""
    before_and_after: bool = True
    """Evaluate before and after training."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sampled evaluation draws from this many most likely tokens; 0 is all. Training always draws from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampled evaluation draws from the fewest most likely tokens whose mass reaches this; 1 is all."""
    min_tokens: Annotated[int, Field(ge=0)] = 0
    """In evaluation no response ends with one of its first this many tokens."""
    control: bool = False
    """After training, train the initial policy on `sft.data` for the same wall time and evaluate it as well."""

    @property
    def reported_seeds(self) -> range:
        """Of the evaluations before and after training, and of `quartet eval`."""
        return range(self.first_seed, self.first_seed + self.episodes_per_family)

    @property
    def selection_seeds(self) -> range:
        """Of the evaluations during training, which mark the best policy."""
        first = self.first_seed + SELECTION_OFFSET
        return range(first, first + self.episodes_per_family_during)


class Disk(Section):
    """Disk budget."""

    keep_policies: Positive = 4
    """Newest policies kept on disk, besides the first, the best, those under evaluation and those that an engine or a
    trainer checkpoint on disk needs."""
    keep_checkpoints: Positive = 2
    """Newest trainer checkpoints kept on disk."""
    max_blob_megabytes: Positive = 2000
    """When blobs outgrow this, pictures of trained or dropped rollouts go first, but not those of the success pool;
    then the run stops, explained."""
    max_token_values_megabytes: Annotated[int, Field(ge=0)] = 100
    """What the trainer assigned to each trained token (advantage, return) and computed for it (log-prob, entropy), 4 to
    12 bytes a token, is kept for the viewer and the audit. The oldest train steps' go first; 0 keeps none."""
    max_record_age_seconds: Annotated[float, Field(gt=0)] | None = None
    """Records of rollouts whose groups are over are deleted at this age; their rows stay. Unset, they are kept. Records
    trained since the oldest checkpoint on disk stay in any case: after a crash they may be trained again. An audit
    needs the records of the whole run."""
    max_record_age_versions: Positive | None = None
    """The same, counted in policy versions that have been committed since their newest token."""
    min_free_megabytes: Positive = 200
    """With less free disk than this nothing new is started."""


class Runtime(Section):
    """Where the modules run."""

    kind: Literal["processes", "synchronous"] = "processes"
    """`processes`: every module its own process. `synchronous`: one process, one thread, phases in turn; one seed
    gives a bit-identical run."""
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    """`forkserver` (Linux): modules are forked from a process that has imported what they need; one that died is back
    in two or three seconds. `spawn`: each module is a new Python, as it always is on other systems."""
    max_restarts_per_module: Annotated[int, Field(ge=0)] = 20
    """A module that dies more often ends the run."""
    max_restart_delay_seconds: PositiveFloat = 8.0
    """A module that died is started again after 0.5 s, then after twice as long each time, up to this."""
    heartbeat_timeout_seconds: PositiveFloat = 60.0
    """A module without progress for this long is killed and started again. While the trainer writes a policy or a
    checkpoint, each file of at most 500 MB is progress; more than the slowest disk needs for one."""
    ledger_patience_seconds: PositiveFloat = 60.0
    """Bound of every wait for the PostgreSQL server of `ledger.url`, of all processes. A run whose server is frozen or
    unreachable goes on when the server is back before, and ends with exit code 5 otherwise."""
    engine_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the engine on this machine; 0 picks a free one."""
    env_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the environment host on this machine; 0 picks a free one."""
    receipts: bool = False
    """Worker and trainer write hashes of what they append and train into `receipts/`, for an audit that does not trust
    the ledger. All weights are hashed at every train step."""


class Sink(Choice):
    """Where a run is shown besides its own folder."""

    kind = "sink"


class Observe(Section):
    """What is recorded of a run, and where else it is shown."""

    sinks: SeveralOf[Sink] = []
    """Where metrics or spans are shown besides the run's folder; each a process of its own, which can fail without
    harm."""
    rollouts_per_span: Positive = 1
    """Spans of one rollout in this many are recorded; the metrics count every rollout."""


class Ledger(Section):
    """The database."""

    durability: Literal["process", "full"] = "process"
    """`process` survives the death of any process; `full` also power loss: policies, checkpoints and blobs are synced
    with their folders before the commit that names them, and the commit itself."""
    url: str = ""
    """A PostgreSQL database, `postgresql://user@host/database`, for workers on several machines; empty is a SQLite file
    in the run's folder. The password comes from PGPASSWORD or ~/.pgpass: the recipe is written into the run. Commands
    that are given the run alone send PGPASSWORD only to the server that PGHOST and PGPORT name."""

    blobs_url: str = ""
    """Where blobs of more than 64 kB go: any URL of fsspec (`s3://bucket/run`); empty is the run's folder."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not url.startswith("postgresql://"):
            raise ValueError("must be empty (SQLite) or begin with postgresql://")
        if urlsplit(url).password or "password" in parse_qs(urlsplit(url).query, keep_blank_values=True):
            raise ValueError("holds a password, which would be written into the run: use PGPASSWORD or ~/.pgpass")
        return url
