"""Files that others released: which ones, at which commit, with which digests; and figures that are found in them."""

import csv
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path

from tqdm import tqdm

from simlab.errors import SimlabError, TraceError, UsageError
from simlab.traces.fetching.ahead import fetched_ahead
from simlab.traces.fetching.fetched import NotAsListedError, fetched_file
from simlab.untrusted.json_text import parse_json

_MANIFESTS = Path(str(files("simlab.analysis"))) / "data" / "releases"


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A file of a release.

    Attributes:
        num_bytes: its length; 0: not known, and it is not fetched.
        sha256: its digest, hexadecimal.
    """

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Release:
    """Files of a public repository at one commit.

    Attributes:
        name: of the manifest.
        repository: ``owner/name`` on GitHub.
        commit: 40 hexadecimal digits.
        licence: what the repository says, or that it says nothing.
        files: by path in the repository.
    """

    name: str
    repository: str
    commit: str
    licence: str
    files: Mapping[str, ReleasedFile]

    @property
    def address(self) -> str:
        """Where single files are given out."""
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}"

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(one.num_bytes for one in self.files.values())

    @property
    def source(self) -> str:
        """What a reader would cite."""
        return f"github.com/{self.repository}, commit {self.commit[:7]} ({self.licence})"

    @property
    def folder(self) -> str:
        """Where git puts a clone of it."""
        return self.repository.rpartition("/")[2]

    @property
    def commands(self) -> tuple[str, ...]:
        """What gets a clone of it."""
        return (f"git clone https://github.com/{self.repository}", f"git -C {self.folder} checkout {self.commit}")


@dataclass(frozen=True, slots=True)
class Quoted:
    """A figure of others, read from their own file.

    Attributes:
        value: as it stands there.
        path: the file, in their repository.
        sha256: of the file.
        where: in the file, such as a line or a row.
    """

    value: float
    path: str
    sha256: str
    where: str


def read_release(name: str) -> Release:
    """A release that simlab knows.

    Raises:
        SimlabError: this installation does not hold its manifest.
    """
    path = _MANIFESTS / f"{name}.json"
    if not path.is_file():
        raise SimlabError(f"the list of files of {name} is missing from {path}; install simlab again")
    found = parse_json(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    listed = {key: ReleasedFile(one["bytes"], one["sha256"]) for key, one in found["files"].items()}
    return Release(name, found["repository"], found["commit"], found["licence"], listed)


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedFiles:
    """The files of a release, in a folder or at an address; each is checked before it is read.

    Attributes:
        release: which.
        place: a clone, a folder with the same paths, or an address; None: where it was released.
    """

    release: Release
    place: str | Path | None = None
    _checked: dict[str, Path] = field(default_factory=dict, init=False)

    def path(self, name: str) -> Path:
        """A file on this machine, as it was released; one at an address is fetched into the cache.

        Args:
            name: its path in the repository.

        Raises:
            SimlabError: it cannot be had, or is not as it was released.
            ValueError: it is none of the release.
        """
        if name not in self.release.files:
            raise ValueError(f"{name} is no file of {self.release.name}")
        if name not in self._checked:
            place = str(self.release.address if self.place is None else self.place)
            if not place.strip():
                raise UsageError("--data is empty; expected a clone of the repository, or an address")
            self._checked[name] = self._fetched(place, name) if "://" in place else self._found(Path(place), name)
        return self._checked[name]

    def have(self, names: Sequence[str], progress: bool | None = None) -> None:
        """Check many files at once, and fetch those that are not here.

        Args:
            names: their paths in the repository.
            progress: whether a bar is shown; None: on a terminal.
        """
        shown = sys.stderr.isatty() if progress is None else progress
        # Small files of a far host: several are asked for at a time.
        ready = fetched_ahead(names, lambda name: [partial(self.path, name)])
        for _ in tqdm(ready, total=len(names), desc="released files", unit="file", delay=1, disable=not shown):
            pass

    def text(self, name: str) -> str:
        """A whole file as text; its encoding is UTF-8.

        Raises:
            SimlabError: it is no such text.
        """
        try:
            return self.path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SimlabError(f"{name} is no text in UTF-8 ({error.reason}); expected that") from error

    def value(self, name: str) -> object:
        """The value of a JSON file.

        Raises:
            SimlabError: it is no JSON.
        """
        return _parsed(self.text(name), name)

    def objects(self, name: str) -> Iterator[dict[str, object]]:
        """The objects of a file of JSON lines.

        Raises:
            SimlabError: a line holds something else.
        """
        for number, line in enumerate(self.text(name).rstrip("\n").split("\n"), 1):
            found = _parsed(line, f"{name}, line {number}")
            if not isinstance(found, dict):
                raise SimlabError(f"{name}, line {number}: expected a JSON object; got {type(found).__name__}")
            yield found

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file with a heading."""
        return list(csv.DictReader(self.text(name).splitlines()))

    def quoted_cell(self, name: str, column: str, **row: str) -> Quoted:
        """A number in the only row of a CSV file that has these values.

        Raises:
            SimlabError: there is no such row, or more than one, or it has no number there.
        """
        matching = [one for one in self.rows(name) if all(one.get(key) == value for key, value in row.items())]
        where = ", ".join(f"{key} {value}" for key, value in row.items())
        if len(matching) != 1:
            raise SimlabError(f"{name} has {len(matching)} rows with {where}; expected one")
        try:
            return self.quoted(name, float(matching[0][column]), f"{column} of {where}")
        except (KeyError, ValueError) as error:
            raise SimlabError(f"{name} has no number as {column} of {where}; expected one") from error

    def quoted_pattern(self, name: str, pattern: str) -> Quoted:
        """The only number in a text file that a pattern finds.

        Args:
            name: of the file.
            pattern: a regular expression with one group, the number.

        Raises:
            SimlabError: it finds none, or more than one.
        """
        text = self.text(name)
        found = list(re.finditer(pattern, text, re.MULTILINE))
        if len(found) != 1:
            raise SimlabError(f"{name} has {len(found)} numbers that {pattern!r} finds; expected one")
        return self.quoted(
            name, float(found[0][1].replace(",", "")), f"line {text.count(chr(10), 0, found[0].start(1)) + 1}"
        )

    def quoted(self, name: str, value: float, where: str) -> Quoted:
        """A figure that was read from a file."""
        return Quoted(value, name, self.release.files[name].sha256, where)

    def _found(self, folder: Path, name: str) -> Path:
        path = folder / name
        if not path.is_file():
            lack = f"has no {name}" if folder.is_dir() else "is no folder" if folder.exists() else "does not exist"
            expected = f"expected a clone of github.com/{self.release.repository} at commit {self.release.commit[:7]}"
            raise _with_commands(UsageError(f"{folder} {lack}; {expected}"), self.release)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.release.files[name].sha256:
            refusal = UsageError(
                f"{path} is not as it was released: its sha256 begins with {digest[:12]}, expected "
                f"{self.release.files[name].sha256[:12]}; check out commit {self.release.commit[:7]}"
            )
            raise _with_commands(refusal, self.release)
        return path

    def _fetched(self, place: str, name: str) -> Path:
        folder, _, last = name.rpartition("/")
        file = self.release.files[name]
        if file.num_bytes == 0:
            refusal = SimlabError(f"the length of {name} is not known, so it is not fetched; give a clone with --data:")
            raise _with_commands(refusal, self.release)
        try:
            return fetched_file(f"{place.rstrip('/')}/{folder}".rstrip("/"), last, file.num_bytes, file.sha256)
        except NotAsListedError as error:
            refusal = SimlabError(f"{place}/{name} is not as it was released; give a clone with --data:")
            raise _with_commands(refusal, self.release) from error
        except TraceError as error:
            sentence = str(error).rstrip(".")
            raise _with_commands(SimlabError(f"{sentence}; or give a clone with --data:"), self.release) from error


def _parsed(text: str, what: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise SimlabError(f"{what}: expected JSON; got something else ({error})") from error


def _with_commands(refusal: SimlabError, release: Release) -> SimlabError:
    for command in release.commands:
        refusal.add_note(command)
    return refusal
