"""Asking a server for the texts of a trace, and keeping what it answers."""

import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from simlab.analysis.crosscheck.predicted import PredictedText
from simlab.analysis.engines.answers import (
    EngineAnswer,
    EngineError,
    Json,
    ServerCounters,
    ServerFacts,
    count,
    counters_of,
    inner,
    parsed_object,
    text,
)
from simlab.analysis.engines.known import ENGINES, Engine, engine_named, engine_of
from simlab.analysis.engines.metrics import Samples, read_samples
from simlab.errors import reason_of
from simlab.traces.fetching.fetched import num_promised
from simlab.traces.format.files import write_beside
from simlab.untrusted.json_text import file_text
from simlab.workers.threads import in_order

# Talking to one server over HTTP: nothing is sent anywhere else, and nothing is waited for beyond a limit.


_MOST_BYTES = 1 << 26
_CHUNK_BYTES = 1 << 16
_FACTS_S = 30.0
"""So long a server may take to tell of itself."""


class Endpoint:
    """The address of a server.

    Redirects are not followed, and proxies of the environment are not used.
    """

    def __init__(self, address: str, time_limit_s: float, key: str | None = None) -> None:
        """Take an address such as ``http://127.0.0.1:8000``; ``/v1`` at its end is left out.

        Args:
            address: see above.
            time_limit_s: for the whole of one answer.
            key: that is sent along; it is never shown.
        """
        try:
            parts = urlsplit(address if "://" in address else f"http://{address}")
            port, is_plain = parts.port, parts.hostname and not parts.query and not parts.username
        except ValueError:
            is_plain = False
        if not is_plain or parts.scheme not in ("http", "https"):
            raise EngineError(f"expected the address of a server such as http://127.0.0.1:8000; got {address[:100]!r}")
        self.host, self.is_safe, self.port = parts.hostname or "", parts.scheme == "https", port
        self.path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        self.time_limit_s, self._key = time_limit_s, key
        shown = f"{self.host}:{port}" if port else self.host
        self.address = f"{parts.scheme}://{shown}{self.path}"

    def text(self, path: str) -> str | None:
        """The text at a path; None: the server has nothing there."""
        status, content = self._sent("GET", path, None, min(self.time_limit_s, _FACTS_S), path)
        if status != 200:
            if status in (401, 403):
                raise EngineError(self._refused(path, status, content))
            return None
        return content.decode(errors="replace")

    def facts(self, path: str) -> Json | None:
        """The JSON object at a path; None: there is nothing, or something else."""
        content = self.text(path)
        if content is None or not content.lstrip().startswith("{"):
            return None
        return parsed_object(content, f"what {self.address}{path} answers")

    def answer(self, path: str, body: Json, where: str) -> Json:
        """What the server answers to a request.

        Args:
            path: to which it is sent.
            body: that is sent.
            where: what the answer is called in messages.
        """
        status, content = self._sent("POST", path, json.dumps(body).encode(), self.time_limit_s, where)
        if status != 200:
            raise EngineError(self._refused(where, status, content))
        return parsed_object(content, where)

    def _sent(self, method: str, path: str, body: bytes | None, limit_s: float, where: str) -> tuple[int, bytes]:
        begun = time.monotonic()
        connection = self._connection(limit_s)
        try:
            headers = {"User-Agent": "simlab", "Accept-Encoding": "identity", "Connection": "close"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            connection.request(method, f"{self.path}{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, self._whole(connection, answer, begun + limit_s, where)
        except TimeoutError as error:
            raise EngineError(
                f"{self.address} did not finish {where} within {limit_s:g} seconds; it hangs or is slow: look at its "
                "log, or give it longer with --time-limit"
            ) from error
        except (OSError, HTTPException) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(
                f"{self.address} could not be asked for {where} ({reason[0][:200]}); check that the server runs there"
            ) from error
        finally:
            connection.close()

    def _connection(self, limit_s: float) -> HTTPConnection:
        if self.is_safe:
            return HTTPSConnection(self.host, self.port, timeout=limit_s, context=ssl.create_default_context())
        return HTTPConnection(self.host, self.port, timeout=limit_s)

    def _whole(self, connection: HTTPConnection, answer: HTTPResponse, deadline: float, where: str) -> bytes:
        """All of an answer; each piece may take no longer than what is left."""
        pieces, received = list[bytes](), 0
        promised = num_promised(answer) or 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)
            piece = answer.read1(_CHUNK_BYTES)
            if not piece:
                break
            pieces.append(piece)
            received += len(piece)
            if received > _MOST_BYTES:
                raise EngineError(f"{where} from {self.address} is larger than {_MOST_BYTES >> 20} MiB")
        if received < promised:
            cut = f"cut {where} off after {received:,} of {promised:,} bytes"
            raise EngineError(f"{self.address} {cut}; look at its log")
        return b"".join(pieces)

    def _refused(self, where: str, status: int, content: bytes) -> str:
        detail = " ".join(content.decode(errors="replace").split())[:200]
        begin = f"{self.address} answered {status} to {where}"
        if status in (401, 403):
            return f"{begin}; name the environment variable that holds its key with --key-variable"
        if 300 <= status < 400:
            return f"{begin}: it sends on elsewhere, which is not followed; give the address of the server itself"
        return f"{begin}: {detail}" if detail else begin


FORMAT = "simlab-engine-answers"
_WARM_UP_TOKENS = 16
_SETTLES_S = 2.0
"""So long a server may take to count the last request."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was reached.

    Attributes:
        endpoint: where it is.
        engine: what it is.
        facts: what it tells of itself.
        has_counters: whether it shows counts of its speculation.
        stops: stop tokens of every request.
        model: the name under which the target is served.
    """

    endpoint: Endpoint
    engine: Engine
    facts: ServerFacts
    has_counters: bool
    stops: Sequence[int]
    model: str

    def samples(self) -> Samples | None:
        """The server's metrics now; None: it shows none."""
        return _samples(self.endpoint, self.engine)

    def counters(self) -> ServerCounters | None:
        """The server's counts now; None: it shows none."""
        samples = self.samples()
        return None if samples is None else self.engine.counters(samples)

    def ask(self, text: PredictedText, most: int, where: str) -> Json:
        """The answer to a request for a text of at most so many new tokens."""
        body = self.engine.request(text.prompt_tokens.tolist(), most, self.stops, self.model)
        return self.endpoint.answer(self.engine.answer_path, body, where)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a server answered.

    Attributes:
        engine: what it is.
        facts: what it told of itself.
        bodies: its answers, by the index of the sequence.
        asked: new tokens that each request allowed, the same.
        counters: of these requests; None where they are not known.
        why_no_counters: a sentence where they are not.
        seconds: that all of it took, and of these what was not waiting for the server.
    """

    engine: Engine
    facts: ServerFacts
    bodies: Mapping[int, Json]
    asked: Mapping[int, int]
    counters: ServerCounters | None
    why_no_counters: str
    seconds: float = 0.0

    def answer(self, text: PredictedText) -> EngineAnswer:
        """The answer to one text."""
        answer = self.engine.answer(self.bodies[text.index], f"the answer to {text.name}")
        sent = len(text.prompt_tokens)
        if answer.num_prompt_tokens is not None and answer.num_prompt_tokens != sent:
            raise EngineError(
                f"the server read {answer.num_prompt_tokens} prompt tokens of {text.name} where {sent} were sent: it "
                "adds a chat template or tokens of its own; serve without"
            )
        if answer.token_ids is not None and len(answer.token_ids) != answer.num_tokens:
            raise EngineError(
                f"the answer to {text.name} counts {answer.num_tokens} tokens and holds {len(answer.token_ids)}: it is "
                "not whole"
            )
        return answer


def reach(endpoint: Endpoint, wanted: str, stops: Sequence[int], model: str | None) -> Server:
    """Find out what serves at an address.

    Args:
        endpoint: of the server.
        wanted: the name of an engine, or ``auto``.
        stops: stop tokens.
        model: the name under which the target is served; None: as the server says.
    """
    candidates = ENGINES if wanted == "auto" else (engine_named(wanted),)
    for engine in candidates:
        samples = _samples(endpoint, engine)
        if samples is not None and engine_of(samples) is engine:
            break
    else:
        # A server without metrics is taken at its word.
        samples, engine = None, candidates[0] if wanted != "auto" else engine_named("sglang")
        is_sglang = endpoint.facts("/server_info") is not None and endpoint.facts("/version") is None
        if wanted == "auto" and not is_sglang:
            raise EngineError(
                f"{endpoint.address} shows no metrics of an engine that is known "
                f"({', '.join(engine.title for engine in ENGINES)}); check the address, start the server with its "
                "metrics on, or name it with --engine"
            )
    responses = {path: value for path in engine.fact_paths if (value := endpoint.facts(path)) is not None}
    counted = samples is not None and engine.counters(samples).num_rounds is not None
    facts = engine.facts(responses, samples)
    return Server(endpoint, engine, facts, counted, stops, model or facts.model or "")


def _samples(endpoint: Endpoint, engine: Engine) -> Samples | None:
    content = endpoint.text(engine.metrics_path)
    if content is None or not content.strip() or content.lstrip().startswith(("{", "<", "[")):
        return None
    return read_samples(content, f"what {endpoint.address}{engine.metrics_path} answers")


def collect(
    server: Server,
    texts: Sequence[PredictedText],
    asked: Mapping[int, int],
    concurrency: int,
    shared: bool,
    came: Callable[[int, Json], None],
) -> Collected:
    """Ask for every text, some at a time, and read the counters before and after.

    Args:
        server: that is asked.
        texts: of the trace.
        asked: new tokens that each request allows, by the index of the sequence.
        concurrency: requests at a time.
        shared: whether others may use the server meanwhile; its counters are not read then.
        came: is given each answer, with the index of its sequence.
    """
    before = None if shared else server.counters()
    begun = time.monotonic()
    bodies: dict[int, Json] = {}

    def ask_in_turn(text: PredictedText) -> Json:
        return server.ask(text, asked[text.index], f"the request for {text.name}")

    for written, body in zip(texts, in_order(iter(texts), ask_in_turn, concurrency), strict=True):
        bodies[written.index] = body
        came(written.index, body)
    seconds = time.monotonic() - begun
    collected = Collected(server.engine, server.facts, bodies, dict(asked), None, "", seconds)
    if shared:
        return replace(collected, why_no_counters="not read, since others may use the server (--shared-server).")
    counted = _counted(server, before, len(texts), sum(collected.answer(text).num_tokens for text in texts))
    return (
        replace(collected, why_no_counters=counted)
        if isinstance(counted, str)
        else replace(collected, counters=counted)
    )


def _counted(server: Server, before: ServerCounters | None, num_texts: int, num_tokens: int) -> ServerCounters | str:
    """The counters of these requests, once the server has counted the last; why not, where others were counted too."""
    if before is None:
        return f"the server shows none at {server.engine.metrics_path}."
    deadline = time.monotonic() + _SETTLES_S
    while True:
        after = server.counters()
        if after is None:
            return "the server showed them before the requests, and not after."
        since = after.since(before)
        if (since.num_requests, since.num_tokens) == (num_texts, num_tokens) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if since.num_rounds is None:
        return "the server counts no rounds of speculative decoding."
    for name, counted, own in (("requests", since.num_requests, num_texts), ("tokens", since.num_tokens, num_tokens)):
        if counted is not None and counted != own:
            return f"the server counted {counted:,} {name} while {own:,} were ours: somebody else used it meanwhile."
    if since.num_preempted:
        return f"the server took texts out of its batch {since.num_preempted} times and began again."
    return since


def warmed_up(server: Server, text: PredictedText) -> EngineAnswer:
    """The answer to a short request, which is not counted; it shows whether the server can be asked at all."""
    where = "a first short request"
    return server.engine.answer(server.ask(text, min(_WARM_UP_TOKENS, len(text)), where), where)


class AnswerLog:
    """Answers on disk, a line each as they come; behind the first line, which says whose they are."""

    def __init__(self, path: Path, server: Server, k: int, text_id: str) -> None:
        facts = server.facts
        head = {"format": FORMAT, "format_version": 1, "engine": server.engine.name, "text_id": text_id}
        head |= {"version": facts.version, "model": facts.model, "k": k, "dtype": facts.dtype}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        write_beside(path, lambda file: file.write((json.dumps(head) + "\n").encode()))

    def add(self, line: Json) -> None:
        """Add an answer with its sequence, or the counters of all of them, to the file."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_answers(path: Path, text_id: str) -> Collected:
    """Answers that a crosscheck kept; of one that was broken off those that had come.

    Raises:
        EngineError: it is no such file, or of another trace's texts.
    """
    if not path.is_file():
        raise EngineError(f"expected a file of kept answers at {path}; there is none. Check the path.")
    try:
        lines = file_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} cannot be read ({reason_of(error)}); ask the server again") from error
    head = parsed_object(lines[0] if lines else "", f"{path}, line 1")
    if head.get("format") != FORMAT:
        raise EngineError(
            f"{path} holds no answers of a server; give answers.jsonl that `simlab crosscheck --out` wrote"
        )
    if head.get("text_id") != text_id:
        raise EngineError(
            f"the answers in {path} are to the texts {head.get('text_id')}, and the trace holds {text_id}; give the "
            "trace that they were asked for"
        )
    bodies, asked, counters = dict[int, Json](), dict[int, int](), None
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}, line {number}"
        value = parsed_object(line, where)
        if "counters" in value:
            counters = counters_of(inner(value, "counters"), where)
            continue
        index, most = count(value, "sequence", where), count(value, "asked", where)
        if index is None or most is None:
            raise EngineError(f"{where} has no sequence or no asked; it is damaged")
        bodies[index], asked[index] = inner(value, "body"), most
    engine = engine_named(text(head, "engine") or "")
    facts = ServerFacts(
        version=text(head, "version"),
        model=text(head, "model"),
        num_speculative=count(head, "k", str(path)),
        dtype=text(head, "dtype"),
    )
    return Collected(engine, facts, bodies, asked, counters, "" if counters else "they were not kept.")
