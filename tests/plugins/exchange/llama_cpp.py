"""Ask llama.cpp itself: `python llama_cpp.py FILE.gguf PORT < QUESTIONS`.

Each line of standard input is `["tokenize", text]`, `["greedy", text, tokens]` or `["next", text
or ids, count]`, `["filtered", ids, options]`. Ids, a text, the likeliest next ids with their
log-probabilities, or all next ids with their probabilities after its filters are the answer.
In a process of its own, because its threads do not end.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request


def ask_llama_cpp(path, questions):
    """Return the answers to questions about a file, see above.

    Raises:
        RuntimeError: some were not answered; says why.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    command = [sys.executable, __file__, str(path), str(port)]
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    if ran.returncode or len(answers) != len(questions):
        raise RuntimeError(f"{len(answers)} of {len(questions)} answered: {ran.stderr[-2000:]}")
    return answers


def main() -> None:
    """Answer every line."""
    # What llama.cpp says on standard output would cut an answer in two.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.port = sys.argv[1], int(sys.argv[2])
    parameters.n_ctx, parameters.cpuparams.n_threads, parameters.warmup = 256, 1, False
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    # Flash attention computes in 16 bits whatever the cache has.
    off = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.flash_attn_type = off
    server = xllamacpp.Server(parameters)

    def post(path, **fields):
        body, kind = json.dumps(fields).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(server.listening_address + path, body, kind)
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None

    for line in sys.stdin:
        verb, text, *tokens = json.loads(line)
        if verb == "tokenize":
            how = {"add_special": False, "parse_special": False}
            answer = post("/tokenize", content=text, **how)["tokens"]
        elif verb == "next":
            found = post("/completion", prompt=text, n_predict=1, n_probs=tokens[0])
            likely = found["completion_probabilities"][0]["top_logprobs"]
            answer = [[x["id"], x["logprob"]] for x in likely]
        elif verb == "filtered":
            how = {"n_predict": 1, "n_probs": 1000, "post_sampling_probs": True}
            found = post("/completion", prompt=text, **how, **tokens[0])
            likely = found["completion_probabilities"][0]["top_probs"]
            answer = [[x["id"], x["prob"]] for x in likely]
        else:
            how = {"n_predict": tokens[0], "temperature": 0, "cache_prompt": False}
            answer = post("/completion", prompt=text, **how)["content"]
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
