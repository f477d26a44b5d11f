"""The HTTP side of `strait serve`: completions and chat completions as OpenAI's clients ask for them, for evaluations.

    strait-serve.py PORT MODEL

Listens on 127.0.0.1 only. Requests go to stdout and answers come on stdin, one JSON object a line, by their "id", which
comes first. {"cancel": id} takes a request back, and no answer to it is needed. Whatever a client sends becomes an
answer, or a sentence with a status of 400 and above.
"""

import http.server
import itertools
import json
import math
import os
import socket
import sys
import threading
import time

MOST_BYTES = 4 << 20  # of a request
MOST_DROPPED = 64 << 20  # of a larger one, which is read so that its client reads why it is refused
MOST_PROMPTS = 256  # of a request
MOST_LINE = 900 << 10  # strait keeps no more of a line
SECONDS = 30  # a client that sends nothing for so long is left
LOOK_SECONDS = 0.2  # between two looks whether a client has hung up
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "an object"}
# Options that change an answer and have one value here.
ONLY = {"n": 1, "best_of": 1, "stream": False, "suffix": "", "frequency_penalty": 0, "presence_penalty": 0,
        "logit_bias": {}, "min_tokens": 0, "ignore_eos": False, "stop_token_ids": [], "tools": [], "functions": [],
        "response_format": {"type": "text"}}
ONLY_IN_CHATS = {**ONLY, "logprobs": False, "top_logprobs": 0}


class Refusal(Exception):
    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class Model:
    """The launcher that started this script."""

    def __init__(self, name):
        self.name = name
        self.started = int(time.time())
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.waiting = {}  # id -> [event, answer]
        self.ended = False

    def ask(self, questions, has_left):
        """The answers. Nothing of a request goes on that is refused, or whose client has left."""
        entries = self.send(questions)
        try:
            return [self.answer_to(entry, has_left) for entry in entries.values()]
        except (Refusal, ConnectionError):
            self.cancel(entries)
            raise

    def send(self, questions):
        lines, entries = [], {}
        with self.lock:
            if self.ended:
                raise Refusal(503, "the model has ended")
            for question in questions:
                number = next(self.numbers)
                lines.append(json.dumps({"id": number, **question}) + "\n")
                if len(lines[-1]) > MOST_LINE:
                    raise Refusal(413, f"a prompt has more than {MOST_LINE >> 10} KiB")
                entries[number] = [threading.Event(), None]
            self.waiting.update(entries)
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
        return entries

    @staticmethod
    def answer_to(entry, has_left):
        while True:
            if has_left():
                raise ConnectionAbortedError("the client has hung up")
            if entry[0].wait(LOOK_SECONDS):
                break
        if entry[1] is None:
            raise Refusal(503, "the model has ended before it answered")
        if "error" in entry[1]:
            raise Refusal(400, entry[1]["error"])
        return entry[1]

    def cancel(self, numbers):
        with self.lock:
            unanswered = [number for number in numbers if self.waiting.pop(number, None) is not None]
            if unanswered and not self.ended:
                sys.stdout.write("".join(json.dumps({"cancel": number}) + "\n" for number in unanswered))
                sys.stdout.flush()

    def listen(self):
        for line in sys.stdin:
            answer = json.loads(line)
            with self.lock:
                entry = self.waiting.pop(answer["id"], None)
            if entry is None:
                continue  # it was cancelled at the same time
            entry[1] = answer
            entry[0].set()
        with self.lock:
            self.ended = True
            left, self.waiting = self.waiting, {}
        for entry in left.values():
            entry[0].set()
        if left:
            time.sleep(1)  # so that clients get their answers
        os._exit(0)


def value(request, key, kind, default, lowest=None, highest=None):
    found = request.get(key)
    if found is None:
        return default
    right = isinstance(found, (int, float)) if kind is float else isinstance(found, kind)
    if not right or isinstance(found, bool) and kind is not bool:
        raise Refusal(400, f'"{key}" must be {TYPES[kind]}')
    if lowest is not None and not lowest <= found <= highest:
        raise Refusal(400, f'"{key}" is {found}, but must be from {lowest} to {highest}')
    return found


def options(request, model, only, most_tokens, least_tokens):
    if value(request, "model", str, model.name) != model.name:
        raise Refusal(404, f'the model "{request["model"][:100]}" is not here; this is "{model.name}"')
    for key, neutral in only.items():
        if request.get(key) not in (None, neutral):
            raise Refusal(400, f'"{key}" can only be {json.dumps(neutral)} here')
    limit = "max_tokens" if request.get("max_completion_tokens") is None else "max_completion_tokens"
    stops = request.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops) or len(stops) > 64:
        raise Refusal(400, '"stop" must be a text or a list of at most 64 texts, none of them empty')
    return {
        "max_tokens": value(request, limit, int, most_tokens, least_tokens, 1_000_000),
        "repetition_penalty": value(request, "repetition_penalty", float, 1.0, 0.01, 100),
        "temperature": value(request, "temperature", float, 1.0, 0, 100),
        "top_k": max(0, value(request, "top_k", int, 0, -1, 1_000_000)),  # -1, as vLLM's clients say it: all
        "top_p": value(request, "top_p", float, 1.0, 1e-6, 1),
        "min_p": value(request, "min_p", float, 0.0, 0, 1),
        "seed": value(request, "seed", int, 1, 0, 2**63 - 1),
        "stop": stops,
    }


def prompts_of(request):
    prompt = request.get("prompt")
    is_tokens = lambda one: isinstance(one, list) and one and all(type(t) is int and 0 <= t < 2**31 for t in one)
    prompts = [prompt] if isinstance(prompt, str) or is_tokens(prompt) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(one, str) or is_tokens(one) for one in prompts):
        raise Refusal(400, '"prompt" must be a text, a list of token numbers, or a list of those')
    if len(prompts) > MOST_PROMPTS:
        raise Refusal(400, f'"prompt" has {len(prompts)} prompts; at most {MOST_PROMPTS} are taken')
    return prompts


def logprobs_of(answer, echo):
    scores = answer["scores"] if echo else answer["scores"][len(answer["prompt_tokens"]) - 1:]
    names = [f"token_id:{token}" for token in (answer["prompt_tokens"] if echo else []) + answer["answer_tokens"]]
    names += ["<end>"] * (len(scores) + (1 if echo else 0) - len(names))  # a token that ended the answer
    first = [None] if echo else []  # nothing predicts the first token of a prompt
    top = [{f"token_id:{best}": best_logarithm, name: own} for (own, best, best_logarithm), name
           in zip(scores, names[len(first):])]
    return {"tokens": names, "token_logprobs": first + [score[0] for score in scores], "top_logprobs": first + top,
            "text_offset": []}


def usage(answers):
    asked = sum(len(answer["prompt_tokens"]) for answer in answers)
    made = sum(len(answer["answer_tokens"]) for answer in answers)
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}


def completions(request, model, has_left):
    common = options(request, model, ONLY, 16, 0)
    prompts = prompts_of(request)
    echo = value(request, "echo", bool, False)
    scored = value(request, "logprobs", int, None, 0, 5) is not None
    # An answer of no token is one whose only token is left out.
    none = common["max_tokens"] == 0
    common["max_tokens"] = max(1, common["max_tokens"])
    # A text is its own echo: not every text comes back from its tokens.
    answers = model.ask([{"prompt": prompt, "echo": echo and not isinstance(prompt, str), "score": scored, **common}
                         for prompt in prompts], has_left)
    choices = []
    for index, (prompt, answer) in enumerate(zip(prompts, answers)):
        if none:
            answer.update(text="", answer_tokens=[], end="length", scores=answer["scores"][:-1])
        shown = prompt if isinstance(prompt, str) else answer["prompt_text"]
        choices.append({"index": index, "text": (shown if echo else "") + answer["text"],
                        "finish_reason": answer["end"], "logprobs": logprobs_of(answer, echo) if scored else None})
    return {"id": "completion", "object": "text_completion", "created": int(time.time()), "model": model.name,
            "choices": choices, "usage": usage(answers)}


def chat_completions(request, model, has_left):
    common = options(request, model, ONLY_IN_CHATS, 128, 1)
    messages = value(request, "messages", list, None)
    if not messages:
        raise Refusal(400, '"messages" must be a list of messages')
    answer, = model.ask([{"messages": messages, "echo": False, "score": False, **common}], has_left)
    message = {"role": "assistant", "content": answer["text"]}
    return {"id": "chat", "object": "chat.completion", "created": int(time.time()), "model": model.name,
            "choices": [{"index": 0, "message": message, "finish_reason": answer["end"]}], "usage": usage([answer])}


def finite_number(text):
    number = float(text)
    if not math.isfinite(number):
        raise Refusal(400, "the request has a number that is not finite, such as NaN or 1e999; give a finite one")
    return number


def whole_number(text):
    if len(text) > 20 or not -2**63 <= int(text) < 2**63:
        raise Refusal(400, "the request has a whole number of more than 64 bits; give a smaller one")
    return int(text)


def read_request(body):
    """An object with nothing that JSON in UTF-8 lacks. The launcher's parser takes no more than that."""
    try:
        request = json.loads(body, parse_constant=finite_number, parse_float=finite_number, parse_int=whole_number)
        json.dumps(request, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(400, "the request has half of a surrogate pair, which is not a character; send both halves") from None
    except ValueError:
        raise Refusal(400, "the request is not JSON") from None
    if not isinstance(request, dict):
        raise Refusal(400, "the request is not a JSON object")
    return request


PATHS = {"/v1/completions": completions, "/v1/chat/completions": chat_completions}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    model = None

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header("Connection", "close")  # its body may be unread
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, sentence):
        self.reply(status, {"error": {"message": sentence, "type": "invalid_request_error", "code": status}})

    def do_GET(self):
        if self.path in PATHS:
            return self.refuse(405, f"{self.path} is asked with POST")
        if self.path != "/v1/models":
            return self.refuse(404, f"there is no {self.path[:100]}; there are /v1/models, {' and '.join(PATHS)}")
        model = {"id": self.model.name, "object": "model", "created": self.model.started, "owned_by": "strait"}
        self.reply(200, {"object": "list", "data": [model]})

    def body(self):
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise Refusal(411, "the request has no Content-Length")
        left = int(length)
        if left <= MOST_BYTES:
            return self.rfile.read(left)
        while 0 < left <= MOST_DROPPED and (part := self.rfile.read(min(left, 1 << 16))):
            left -= len(part)
        raise Refusal(413, f"the request has {int(length)} bytes; at most {MOST_BYTES} are taken")

    def has_left(self):
        """Whether the client has hung up. With a timeout, recv() would wait for it."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(SECONDS)

    def do_POST(self):
        try:
            body = self.body()
            answer = PATHS.get(self.path)
            if answer is None:
                raise Refusal(404, f"there is no {self.path[:100]}; there are {' and '.join(PATHS)}")
            content = answer(read_request(body), self.model, self.has_left)
        except Refusal as refusal:
            return self.refuse(refusal.status, str(refusal))
        except RecursionError:  # of its JSON, read or written
            return self.refuse(400, "the request is not JSON that can be taken: it is nested too deeply")
        self.reply(200, content)

    def log_message(self, *_):
        """Requests are not logged."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A client has left."""


def main():
    Handler.model = Model(sys.argv[2])
    try:
        server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    except OSError as error:
        sys.exit(f"127.0.0.1:{sys.argv[1]} cannot be listened on: {error.strerror}; name another one with --port")
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.model.listen()


main()
