"""The HTTP side of `strait serve`: completions and chat completions as OpenAI's clients ask for them, for evaluations.

    strait-serve.py PORT MODEL

Listens on 127.0.0.1 only. Requests go to stdout and answers come on stdin, one JSON object a line, by their "id".
Whatever a client sends becomes an answer, or a sentence with a status of 400 and above.
"""

import http.server
import itertools
import json
import os
import sys
import threading
import time

MOST_BYTES = 4 << 20  # of a request
MOST_PROMPTS = 256  # of a request
MOST_LINE = 900 << 10  # strait keeps no more of a line
SECONDS = 30  # a client that sends nothing for so long is left
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "an object"}


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

    def ask(self, questions):
        entries = []
        with self.lock:
            if self.ended:
                raise Refusal(503, "the model has ended")
            for question in questions:
                number = next(self.numbers)
                line = json.dumps({"id": number, **question})
                if len(line) > MOST_LINE:
                    raise Refusal(413, f"a prompt has more than {MOST_LINE >> 10} KiB")
                entries.append((line, self.waiting.setdefault(number, [threading.Event(), None])))
            sys.stdout.write("".join(line + "\n" for line, _ in entries))
            sys.stdout.flush()
        answers = []
        for _, entry in entries:
            entry[0].wait()
            if entry[1] is None:
                raise Refusal(503, "the model has ended before it answered")
            answers.append(entry[1])
        for answer in answers:
            if "error" in answer:
                raise Refusal(400, answer["error"])
        return answers

    def listen(self):
        for line in sys.stdin:
            answer = json.loads(line)
            with self.lock:
                entry = self.waiting.pop(answer["id"])
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


def options(request, model, most):
    if value(request, "model", str, model.name) != model.name:
        raise Refusal(404, f'the model "{request["model"][:100]}" is not here; this is "{model.name}"')
    for key, only in (("n", 1), ("best_of", 1), ("stream", False), ("suffix", "")):
        if request.get(key) not in (None, only):
            raise Refusal(400, f'"{key}" can only be {json.dumps(only)} here')
    stops = request.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops) or len(stops) > 64:
        raise Refusal(400, '"stop" must be a text or a list of at most 64 texts, none of them empty')
    return {
        "max_tokens": value(request, "max_tokens", int, most, 0, 1_000_000),
        "temperature": value(request, "temperature", float, 1.0, 0, 100),
        "top_p": value(request, "top_p", float, 1.0, 1e-6, 1),
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


def completions(request, model):
    common = options(request, model, 16)
    prompts = prompts_of(request)
    echo = value(request, "echo", bool, False)
    scored = value(request, "logprobs", int, None, 0, 5) is not None
    # An answer of no token is one whose only token is left out.
    none = common["max_tokens"] == 0
    common["max_tokens"] = max(1, common["max_tokens"])
    answers = model.ask([{"prompt": prompt, "echo": echo, "score": scored, **common} for prompt in prompts])
    choices = []
    for index, answer in enumerate(answers):
        if none:
            answer.update(text="", answer_tokens=[], end="length", scores=answer["scores"][:-1])
        choices.append({"index": index, "text": (answer["prompt_text"] if echo else "") + answer["text"],
                        "finish_reason": answer["end"], "logprobs": logprobs_of(answer, echo) if scored else None})
    return {"id": "completion", "object": "text_completion", "created": int(time.time()), "model": model.name,
            "choices": choices, "usage": usage(answers)}


def chat_completions(request, model):
    common = options(request, model, 128)
    messages = value(request, "messages", list, None)
    if not messages:
        raise Refusal(400, '"messages" must be a list of messages')
    answer, = model.ask([{"messages": messages, "echo": False, "score": False, **common, "max_tokens": max(1, common["max_tokens"])}])
    message = {"role": "assistant", "content": answer["text"]}
    return {"id": "chat", "object": "chat.completion", "created": int(time.time()), "model": model.name,
            "choices": [{"index": 0, "message": message, "finish_reason": answer["end"]}], "usage": usage([answer])}


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
            self.send_header("Connection", "close")  # the rest of its body is not read
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

    def request_body(self):
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refusal(411, "the request has no Content-Length")
        if int(length) > MOST_BYTES:
            raise Refusal(413, f"the request has {int(length)} bytes; at most {MOST_BYTES} are taken")
        try:
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refusal(400, "the request is not JSON") from None
        if not isinstance(request, dict):
            raise Refusal(400, "the request is not a JSON object")
        return request

    def do_POST(self):
        answer = PATHS.get(self.path)
        if answer is None:
            return self.refuse(404, f"there is no {self.path[:100]}; there are {' and '.join(PATHS)}")
        try:
            content = answer(self.request_body(), self.model)
        except Refusal as refusal:
            return self.refuse(refusal.status, str(refusal))
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
