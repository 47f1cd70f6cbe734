"""Load the policies that a train step evaluates but does not train by gradients: the reference and a teacher."""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.on_progress import no_progress
from quartet.policy.kind.find import kind_of, load_pictures
from quartet.policy.load import load_model
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.train.assign import needs_of
from quartet.train.credit.base import Credit
from quartet.train.objective import Objective


def load_frozen(
    recipe: Recipe, credits: Sequence[Credit], initial: Path, *, on_progress: Callable[[], None] = no_progress
) -> dict[str, PreTrainedModel]:
    """Return the policies for the passes `reference` and `teacher`, each only if a credit or the loss needs the pass.

    The reference is `initial`, the policy that the run started from. A checkpoint replaces the weights of a moving
    reference. With `lora.rank` the reference is the base of the trained policy, which is not loaded a second time.
    Raise `ConfigError` for a teacher with another vocabulary, or if teacher and policy do not read the same pictures.
    """
    folders: dict[str, Path] = {}
    if "reference" in needs_of(credits) | Objective(recipe.loss).needs and not recipe.lora.rank:
        folders["reference"] = initial
    for credit in credits:
        if "teacher" in credit.needs:
            folders["teacher"] = Path(credit.settings.teacher)
            _require_same_inputs(folders["teacher"], initial)
            _require_vocabulary(folders["teacher"], initial, trust_remote_code=recipe.model.trust_remote_code)
    return {
        name: load_model(folder, trust_remote_code=recipe.model.trust_remote_code, on_progress=on_progress)
        for name, folder in folders.items()
    }


def _require_same_inputs(teacher: Path, student: Path) -> None:
    if kind_of(teacher).reads_pictures != kind_of(student).reads_pictures:
        reader, other = (teacher, student) if kind_of(teacher).reads_pictures else (student, teacher)
        raise ConfigError(
            f"{reader} reads pictures and {other} reads only text: teacher and policy cannot score the same tokens",
            "choose a teacher of the policy's kind",
        )
    theirs, ours = load_pictures(teacher), load_pictures(student)
    if theirs and ours and theirs.fingerprint != ours.fingerprint:
        raise ConfigError(
            f"{teacher} and {student} make other patches of the same picture: their image processors differ",
            "choose a teacher of the policy's kind, with the same preprocessor_config.json",
        )


def _require_vocabulary(teacher: Path, student: Path, *, trust_remote_code: bool) -> None:
    theirs, ours = (load_tokenizer(folder, trust_remote_code=trust_remote_code) for folder in (teacher, student))
    if theirs.get_vocab() != ours.get_vocab():
        raise ConfigError(
            f"the teacher in {teacher} has another vocabulary than {student}: its log-probs would be of other tokens",
            "choose a teacher with the same tokenizer",
        )
