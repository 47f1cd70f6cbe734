"""Settings of a run as a whole: evaluation, processes, observation, storage."""

from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import LocalPath, Positive, PositiveFloat, Section

SELECTION_OFFSET = 500_000
"""Distance from the first seed for reported results to the first selection seed."""


class Evaluation(Section):
    """Held-out evaluation on seeds that training does not draw."""

    train_steps_per_evaluation: Annotated[int, Field(ge=0)] = 0
    """Number of train steps between two evaluations on selection seeds, which mark the best policy. 0: evaluate only
    before and after training."""
    episodes_per_family: Annotated[int, Field(gt=0, le=SELECTION_OFFSET)] = 20
    """Episodes per family of the evaluations before and after training."""
    episodes_per_family_during: Annotated[int, Field(gt=0, le=SELECTION_OFFSET)] = 4
    """Episodes per family of the evaluations during training."""
    first_seed: Annotated[int, Field(ge=0)] = 1_000_000
    """First held-out seed; a recipe whose training seeds reach it is an error. The evaluations before and after
    training use the seeds from this one on. The evaluations during training choose the best policy on selection seeds,
    which begin 500,000 higher, so that success is not reported on the seeds that selected the policy."""
    before_and_after: bool = True
    """Evaluate before and after training."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of most likely tokens from which the sampled part of an evaluation draws; 0 means all. Training always
    draws from all tokens."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling in the sampled part of an evaluation: draw from the smallest set of most likely tokens whose
    probabilities sum to at least this; 1 means all tokens."""
    min_tokens: Annotated[int, Field(ge=0)] = 0
    """Minimum length of an evaluation's response, in tokens."""
    blind: bool = False
    """Evaluate before and after training once more with exchanged pictures: every prompt shows the first picture of
    another task of the family. The success that remains does not come from seeing."""
    supervised_control: bool = False
    """After training, fine-tune the initial policy on `sft.data` for the same wall time and evaluate it as a
    control."""

    @property
    def reported_seeds(self) -> range:
        """Seeds of the evaluations before and after training, and of `quartet eval`."""
        return range(self.first_seed, self.first_seed + self.episodes_per_family)

    @property
    def selection_seeds(self) -> range:
        """Seeds of the evaluations during training, which mark the best policy."""
        first = self.first_seed + SELECTION_OFFSET
        return range(first, first + self.episodes_per_family_during)


class Disk(Section):
    """Disk budget."""

    keep_policies: Positive = 4
    """Number of newest policies kept on disk. The first policy, the best one, and policies that an evaluation, an
    engine or a trainer checkpoint on disk needs are kept in addition."""
    keep_checkpoints: Positive = 2
    """Number of newest trainer checkpoints kept on disk, besides the one that is being written. For the best policy
    only its weights are kept."""
    max_blob_megabytes: Positive = 2000
    """Disk budget of blobs, including the states and calls with which forked rollouts begin. If blobs exceed it,
    pictures of trained or dropped rollouts are deleted, except pictures of the success pool; if that is not enough, the
    run stops and reports the reason."""
    max_token_values_megabytes: Annotated[int, Field(ge=0)] = 100
    """Disk budget of token values for the viewer and the audit: advantage, return, log-prob and entropy of each trained
    token, 4 to 12 bytes per token. The values of the oldest train steps are deleted first; 0 keeps none."""
    max_record_age_seconds: Annotated[float, Field(gt=0)] | None = None
    """Age at which records of rollouts in finished groups are deleted; their rows in the ledger are kept. If unset, all
    records are kept. Records trained since the oldest checkpoint on disk are never deleted, since a crash may require
    training them again. A record of more than 64 KiB after compression is a file, which is deleted by `quartet ledger
    gc` only. An audit needs the records of the whole run."""
    max_record_age_versions: Positive | None = None
    """Age at which records are deleted, as in `max_record_age_seconds`, in policy versions committed since the record's
    newest token."""
    min_free_megabytes: Positive = 200
    """Free disk space below which the run stops. It can be resumed."""


def _host(name: str) -> str:
    if not name or "/" in name or "[" in name or name.count(":") == 1:
        raise ValueError(f"{name!r} is not a host -> write an address or a name, without http:// and without a port")
    return name


Host = Annotated[str, AfterValidator(_host)]
"""Address or name of this machine, or `0.0.0.0` (IPv4) or `::` (IPv6) for all its addresses."""


class Tls(Section):
    """TLS between the modules of a run: HTTPS for engines and environment host."""

    certificate: LocalPath = ""
    """PEM file with the certificate of engines and environment host, which names their hosts. Empty: no TLS."""
    key: LocalPath = ""
    """PEM file with the certificate's private key, readable by the run's user only."""
    authority: LocalPath = ""
    """PEM file with the only certificates that modules trust, and whose signatures they trust; empty is the certificate
    itself."""

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("only one of runtime.tls.certificate and runtime.tls.key is set -> set both or neither")
        if self.authority and not self.certificate:
            raise ValueError("runtime.tls.authority has no effect without a certificate -> set certificate and key")
        return self

    @property
    def trusted(self) -> str:
        """PEM file with the certificates that modules trust; empty without TLS."""
        return self.authority or self.certificate


class Runtime(Section):
    """Processes of the modules."""

    kind: Literal["processes", "ray", "synchronous"] = "processes"
    """`processes`: one process per module, on this machine. `ray`: the same processes on a Ray cluster, placed by
    `[placement]`. `synchronous`: one process and one thread, in which generation and training alternate; runs with the
    same seed are then bit-identical. No other process watches its heartbeats, so it waits for ever if an environment or
    the trainer hangs."""
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    """`forkserver` (Linux): modules are forked from a process with preloaded imports, so that a restart takes two or
    three seconds. `spawn`: each module is a new Python process; other systems, and Ray, always use this method."""
    max_restarts_per_module: Annotated[int, Field(ge=0)] = 20
    """Maximum number of restarts of a module. The run ends when the module dies once more."""
    max_restart_delay_seconds: PositiveFloat = 8.0
    """Maximum delay of a restart. The first restart of a module is immediate, the second is delayed by 0.5 s, and each
    later one by twice the previous delay."""
    heartbeat_timeout_seconds: PositiveFloat = 60.0
    """Time without progress after which a module is killed and restarted. While the trainer writes a policy, each
    written file of at most 500 MB is progress, so this time must exceed the time that the disk needs for one file. With
    `kind = "processes"` on Linux, time in which a module waits for a processor, because other programs use all of them,
    is not counted; after five times this time the module is killed in any case. Of a trainer in several processes
    only the waits of rank 0 are known, and the exchange between ranks has a limit that counts all time."""
    ledger_timeout_seconds: PositiveFloat = 60.0
    """Timeout of every wait for the PostgreSQL server of `ledger.url`, in all processes. If the server is frozen or
    unreachable, the run continues once the server is back within this time; otherwise it ends with exit code 5."""
    engine_host: Host = "127.0.0.1"
    """Address on which the engines listen. By default only programs of this machine can connect. With `0.0.0.0`, all
    addresses of this machine, other modules use its host name."""
    engine_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the engine on this machine; 0 picks a free one."""
    env_host: Host = "127.0.0.1"
    """Address on which the environment host listens, like `engine_host`."""
    env_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the environment host on this machine; 0 picks a free one."""
    tls: Tls = Tls()
    """TLS between the modules of the run."""
    receipts: bool = False
    """Write receipts to `receipts/`: hashes of the trajectories that the worker appends, and of the batches that the
    trainer trains. An audit reads receipts instead of trusting the ledger. All weights are hashed at every train
    step."""

    @property
    def longest_silence_seconds(self) -> float:
        """Time without progress after which a module is killed even if it has waited for a processor. A batch is leased
        to the trainer for as long."""
        return 5 * self.heartbeat_timeout_seconds


class Sink(Choice):
    """Destination of metrics or spans besides the run's folder."""

    kind = "sink"


class Observe(Section):
    """Records of a run, and their destinations."""

    sinks: SeveralOf[Sink] = []
    """Destinations of metrics or spans besides the run's folder. Each runs in its own process, whose failure does not
    affect the run."""
    rollouts_per_span: Positive = 1
    """N: spans are recorded for every N-th rollout; 1 records the spans of all rollouts. Metrics are always recorded
    for all rollouts."""


class Ledger(Section):
    """Database of the run."""

    durability: Literal["process", "full"] = "process"
    """Failures that committed work survives. `process`: the death of any process. `full`: also power loss: policies and
    blobs are synced to disk before the commit that names them, checkpoints before they count as whole, and the commit
    is synced."""
    url: str = ""
    """PostgreSQL database, `postgresql://user@host/database`, for workers on several machines; empty is a SQLite file
    in the run's folder. The password comes from PGPASSWORD or ~/.pgpass, since the recipe is written to the run's
    folder. Commands that receive only the run send PGPASSWORD only to the server named by PGHOST and PGPORT."""

    blobs_url: str = ""
    """Location of blobs of more than 64 kB: `s3://bucket/folder`, or a URL of another store that fsspec has a driver
    for; empty is the run's folder. Each run has a folder of its own there. The credentials are those of the driver; for
    S3 the variables and files of the AWS command line."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not url.startswith("postgresql://"):
            raise ValueError("is not a database -> write postgresql://USER@HOST/DATABASE, or leave it empty for SQLite")
        if urlsplit(url).password or "password" in parse_qs(urlsplit(url).query, keep_blank_values=True):
            raise ValueError("contains a password, which would be written to the run -> use PGPASSWORD or ~/.pgpass")
        return url
