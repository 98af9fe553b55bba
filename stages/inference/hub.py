"""The small files of a model of the hub. A hub that cannot be reached costs seconds, not the library's many retries."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from stages.inference.engine import EngineMisconfigured, EngineUnavailable

REACH_S = 4.0
"""How long the hub may take to say anything at all. Looking up its name has no limit of its own."""


def hub_files(model: str, revision: str | None, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the files that the model has; the ones downloaded before where the hub cannot be reached.

    Raises `EngineMisconfigured` for a name that is none there, and for a hub out of reach with nothing downloaded;
    `EngineUnavailable` where the hub breaks off.
    """
    _check_name(model)
    reached = _reached()
    found: dict[str, bytes] = {}
    for name in names:
        data = _file(model, revision, name, only_local=not reached)
        if data is not None:
            found[name] = data
    if not (found or reached):
        raise EngineMisconfigured(f"{model} is no folder here, and the hub ({_endpoint()}) could not be reached")
    return found


def _file(model: str, revision: str | None, name: str, *, only_local: bool) -> bytes | None:
    """One file, None where the model has none of that name (or none here, `only_local`)."""
    import huggingface_hub
    from huggingface_hub import errors

    download = cast("Any", huggingface_hub).hf_hub_download
    try:
        return Path(download(model, name, revision=revision, local_files_only=only_local)).read_bytes()
    except errors.GatedRepoError as error:
        raise EngineMisconfigured(f"{model} asks for a token that may read it: set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise EngineMisconfigured(f"{model} is no folder here and no model of the hub ({_endpoint()})") from error
    except errors.RevisionNotFoundError as error:
        raise EngineMisconfigured(f"{model} has no revision {revision} on the hub") from error
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError) and not only_local:
            raise EngineUnavailable(f"the hub ({_endpoint()}) broke off while it gave {model}: {error}") from error
        return None
    except Exception as error:
        raise EngineUnavailable(f"{model} is no folder here, and the hub did not give it: {error}") from error


def _check_name(model: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(model)
    except HFValidationError as error:
        raise EngineMisconfigured(f"{model} is no folder here, and no name (organisation/model) of the hub") from error


def _reached() -> bool:
    """Whether the hub answers, whatever it says."""
    answers: list[Any] = []
    asking = threading.Thread(target=_ask, args=(answers,), name="hub", daemon=True)
    asking.start()
    asking.join(REACH_S)
    return bool(answers)


def _ask(answers: list[Any]) -> None:
    import huggingface_hub

    try:
        answers.append(cast("Any", huggingface_hub).get_session().head(_endpoint(), timeout=REACH_S))
    except Exception:  # noqa: BLE001 — no route, no name, a proxy, HF_HUB_OFFLINE: all of it means no
        return


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)
