"""A trace in a dataset repository of the Hugging Face Hub: one commit, so that it is there whole or not at all."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import SimlabError, TraceError, UsageError, reason_of
from simlab.traces.fetching.addresses import check_online, hub_address, hub_endpoint

if TYPE_CHECKING:
    from huggingface_hub import HfApi  # an extra of its own, which nothing else here needs

_WRITING = "log in with `hf auth login`, or set HF_TOKEN to a token that may write there"
_REFUSED = (401, 403)


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A folder of a dataset repository.

    Attributes:
        address: as it was typed.
        repository: owner and name.
        revision: the branch that gets the commit.
        folder: empty: the root.
        public: whether everybody may see the repository if it is made now.
    """

    address: str
    repository: str
    revision: str
    folder: str
    public: bool

    def described(self) -> str:
        """Name the repository, and who may see it."""
        seen = "public" if self.public else "private"
        return f"{self.address}: {seen} if it is made now, in one commit on {self.revision}, at {hub_endpoint()}"

    def send(self, files: Mapping[str, Path], texts: Mapping[str, str]) -> str:
        """Send all in one commit; returns the address."""
        check_online(self.address)
        with _explained(self.address):
            from huggingface_hub import CommitOperationAdd, HfApi  # noqa: PLC0415 - an extra of its own

            api = HfApi(endpoint=hub_endpoint(), library_name="simlab")
            self._make(api)
            before = f"{self.folder}/" if self.folder else ""
            operations = [CommitOperationAdd(f"{before}{name}", str(path)) for name, path in files.items()]
            operations += [CommitOperationAdd(f"{before}{name}", text.encode()) for name, text in texts.items()]
            api.create_commit(
                self.repository,
                operations,
                commit_message="A trace of simlab",
                repo_type="dataset",
                revision=self.revision,
            )
        return self.address

    def _make(self, api: "HfApi") -> None:
        """Make the repository, unless it is there and as private as it is to be."""
        api.create_repo(self.repository, repo_type="dataset", private=not self.public, exist_ok=True)
        if not self.public and not api.dataset_info(self.repository).private:
            raise UsageError(
                f"{self.address} is there already and everybody can see it; add --public to send the trace there, or "
                "name another repository"
            )
        if self.revision != "main":
            api.create_branch(self.repository, branch=self.revision, repo_type="dataset", exist_ok=True)


def hub_repository(address: str, public: bool) -> HubRepository:
    """The repository that an address names."""
    try:
        found = hub_address(address)
    except TraceError as error:
        raise UsageError(str(error)) from error
    if found.kind != "datasets":
        raise UsageError(f"a trace is sent to a dataset repository, hf://datasets/OWNER/NAME; got {address}")
    return HubRepository(address, found.repository, found.revision, found.folder, public)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Say in one sentence why nothing could be sent."""
    try:
        yield
    except SimlabError:
        raise
    except ModuleNotFoundError as error:
        raise SimlabError(
            f"{address} is sent with the package {error.name}, which is not installed; install it with: "
            'pip install "simlab[hub]"'
        ) from error
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        refused = f"no permission, the hub answered {code}; {_WRITING}"
        is_refused = code in _REFUSED or type(error).__name__ == "LocalTokenNotFoundError"
        reason = refused if is_refused else reason_of(error)[:200]
        raise SimlabError(f"nothing was sent to {address} ({reason}); the same command tries again") from error
