"""Commands and options of other tools work, or one line names ours.

The guesses are from the documentation of those tools, and not from our table of their words.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers_cli import installed, needs
from places import STORED

from seqgen.cli import all_commands
from seqgen.cli.shell.help import help_texts
from seqgen.settings import other_tools
from seqgen.settings.other_tools import pretrained_hint, words_elsewhere

MODEL = str(STORED / "models" / "lstm-char")
TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 40


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return "text.txt"


# A line of another tool's habits, and the line of seqgen that has the same results.
SAMPLE, BEAM = f"sample -m {MODEL} --seed 1 --json", f"beam-search -m {MODEL} --json"
SAME = {
    # transformers: generate()
    f"{SAMPLE} a --max-new-tokens 5": f"{SAMPLE} a --max-tokens 5",
    f"{SAMPLE} a --max_new_tokens 5": f"{SAMPLE} a --max-tokens 5",
    f"{SAMPLE} a --max_new_tokens=5": f"{SAMPLE} a --max-tokens 5",
    f"{SAMPLE} a --max-tokens 9 --min_new_tokens 9": f"{SAMPLE} a --max-tokens 9 --min-tokens 9",
    f"{SAMPLE} a --max-tokens 5 --top_k 3": f"{SAMPLE} a --max-tokens 5 --top-k 3",
    f"{SAMPLE} a --max-tokens 5 --num-return-sequences 3": f"{SAMPLE} a --max-tokens 5 "
    "--num-samples 3",
    f"{SAMPLE} a --max-tokens 9 --no-repeat-ngram-size 2": f"{SAMPLE} a --max-tokens 9 "
    "--no-repeat-ngram 2",
    f"{SAMPLE} a --max-tokens 9 --typical_p 0.5": f"{SAMPLE} a --max-tokens 9 --typical 0.5",
    f"{BEAM} a --max-tokens 5 --num-beams 3": f"{BEAM} a --max-tokens 5 --beams 3",
    f"{BEAM} a --max-tokens 5 --num-beams 3 --num_return_sequences 3": f"{BEAM} a --max-tokens 5 "
    "--beams 3 --nbest 3",
    # llama.cpp: llama-cli, llama-completion
    f"{SAMPLE} --max-tokens 5 -p a": f"{SAMPLE} --max-tokens 5 a",
    f"{SAMPLE} --prompt a --max-tokens 5": f"{SAMPLE} a --max-tokens 5",
    f"{SAMPLE} --prompt -1 --max-tokens 5": f"{SAMPLE} --max-tokens 5 -- -1",
    f"{SAMPLE} --prompt=a --prompt b --max-tokens 5": f"{SAMPLE} a b --max-tokens 5",
    f"{SAMPLE} a --n-predict 5": f"{SAMPLE} a --max-tokens 5",
    f"{SAMPLE} a --max-tokens 5 --temp 0.5": f"{SAMPLE} a --max-tokens 5 --temperature 0.5",
    f"{SAMPLE} -f text.txt --max-tokens 5": f"{SAMPLE} --prompt-file text.txt --max-tokens 5",
    f"{SAMPLE} --file text.txt --max-tokens 5": f"{SAMPLE} --prompt-file text.txt --max-tokens 5",
    # nanoGPT: sample.py; Ollama
    f"{SAMPLE} a --num_samples=2 --max_new_tokens=4": f"{SAMPLE} a --num-samples 2 --max-tokens 4",
    f"{SAMPLE} a --num_predict 5": f"{SAMPLE} a --max-tokens 5",
    # fairseq, OpenNMT
    f"{BEAM} a --max-tokens 5 --beam 3": f"{BEAM} a --max-tokens 5 --beams 3",
    f"{BEAM} a --max-tokens 5 --beam_size 3 --n_best 2": f"{BEAM} a --max-tokens 5 --beams 3 "
    "--nbest 2",
    f"beam-search --path {MODEL} --json a --max-tokens 5": f"{BEAM} a --max-tokens 5",
    # Scripts: run_generation.py, run_clm.py, lm-evaluation-harness
    f"sample --model_name_or_path {MODEL} --seed 1 --json a --max-tokens 5": f"{SAMPLE} a "
    "--max-tokens 5",
    f"eval --data text.txt -m {MODEL} --perplexity --json": f"eval text.txt -m {MODEL} "
    "--perplexity --json",
    # Commands
    f"generate -m {MODEL} --seed 1 --json a --max-tokens 5": f"{SAMPLE} a --max-tokens 5",
    f"complete -m {MODEL} --seed 1 --json a --max-tokens 5": f"{SAMPLE} a --max-tokens 5",
    f"beam_search -m {MODEL} --json a --max-tokens 5": f"{BEAM} a --max-tokens 5",
    f"ppl text.txt -m {MODEL} --json": f"perplexity text.txt -m {MODEL} --json",
    f"score text.txt -m {MODEL} --json": f"perplexity text.txt -m {MODEL} --json",
    f"eval text.txt -m {MODEL} --ppl --json": f"eval text.txt -m {MODEL} --perplexity --json",
    f"evaluate text.txt -m {MODEL} --perplexity": f"eval text.txt -m {MODEL} --perplexity",
    "ls": "models list",
    "list --json": "models list --json",
    "models ls": "models list",
    "rm nothing": "models remove nothing",
    "models delete nothing": "models remove nothing",
    f"show {MODEL}": f"models show {MODEL}",
    "version": "--version",
    "encode text.txt --tokenizer byte": "tokenize text.txt --tokenizer byte",
    # train: nanoGPT, run_clm.py, fairseq; settings are checked before anything is trained
    "train text.txt --n_layer x": "train text.txt --layers x",
    "train text.txt --max_iters 0": "train text.txt --steps 0",
    "train text.txt --learning_rate -1": "train text.txt --lr -1",
    "train text.txt --num_train_epochs 0": "train text.txt --epochs 0",
    "train text.txt --max-epoch 0": "train text.txt --epochs 0",
    "train text.txt --block_size 0": "train text.txt --seq-len 0",
    "train --train_file nothing.txt": "train nothing.txt",
    "train text.txt --arch lstn": "train text.txt --model lstn",
    "train --input nothing.txt": "train nothing.txt",
    "train text.txt -model lstn": "train text.txt --model lstn",
    "fit text.txt --lr -1": "train text.txt --lr -1",
    "fairseq-train text.txt --lr -1": "train text.txt --lr -1",
    "llama_cli -h": "sample -h",
    "mlx_lm.generate -h": "sample -h",
    "infer -h": "sample -h",
    "evaluate-model -h": "eval -h",
    "train text.txt --train.max_steps 0": "train text.txt --steps 0",
    "train text.txt --iters 0": "train text.txt --steps 0",
    "hydra-train text.txt --lr -1": "train text.txt --lr -1",
    f"{BEAM} a --max-tokens 5 --num_hypotheses 2": f"{BEAM} a --max-tokens 5 --nbest 2",
    f"perplexity text.txt -lm {MODEL} --json": f"perplexity text.txt -m {MODEL} --json",
    f"models show -m {MODEL}": f"models show {MODEL}",
    f"sample -model {MODEL} --seed 1 --json a --max-tokens 5": f"{SAMPLE} a --max-tokens 5",
}
# What is typed, and what the one line must name.
NAMED = {
    "finetune text.txt": "seqgen train DATA --init-from MODEL",
    "fine-tune": "seqgen train DATA --init-from MODEL",
    "resume book": "seqgen train --resume NAME",
    "run book hello": "seqgen sample PROMPT",
    "lmplz -o 5": "--model ngram --order 5",
    "query": "seqgen perplexity",
    "preprocess --trainpref x": "seqgen train DATA",
    "ensemble a b": "seqgen mix",
    "models resume": "there is no command 'models resume' (try seqgen models --help)",
    "models lst": "did you mean 'models list'?",
    "smaple x": "did you mean 'sample'?",
    "build_vocab text.txt": "seqgen tokenize FILE --train bpe --vocab-size N",
    "cache": "seqgen models cache",
    "cache ls": "seqgen models cache",
    "stop": "Ctrl-C",
    "-m book": "options come after a command: seqgen sample PROMPT -m NAME",
    "-p hello": "seqgen sample PROMPT -m NAME",
    "gpt2": "there is no command 'gpt2' (try seqgen --help)",
    "tokenize -p hello": "echo TEXT | seqgen tokenize - ",
    "eval --prompt hello": "seqgen sample PROMPT -m NAME",
    "eval text.txt --limit 10": "head -n N FILE",
    "train text.txt --from_pretrained x": "did you mean --init-from?",
    "serve --gpu-memory-utilization 0.9": "leave it out",
    "predict-next x": "seqgen sample PROMPT --suggest 10",
    "fintune text.txt": "seqgen train DATA --init-from MODEL",
    "ps": "seqgen models lists the stored models",
    "rm": "NAMES is missing: Trained models (seqgen models lists them).",
    "train text.txt --lora 8": "did you mean --init-from MODEL --set lora=8?",
    "train --init_from book": "give a text file: seqgen train FILE --init-from book",
    "bleu --metric bleu chrf": "there is no file chrf; each metric has its own --metric chrf",
    "sample -n 100": "--max-tokens",
    "sample --max_length 100": "did you mean --max-tokens?",
    "sample --repeat-penalty 1.1": "did you mean --repetition-penalty?",
    "sample --num-beams 4": "--beams is an option of seqgen beam-search",
    "sample --do_sample": "--greedy",
    "sample --num-epochs 3": "--epochs is an option of seqgen train",
    "eval --num-epochs 3": "--epochs is an option of seqgen train",
    "sample --lora adapter": "-m NAME",
    "sample -t 4": "did you mean --threads?",
    "sample -ngl 99": "did you mean --device cuda?",
    "sample -c 2048": "seqgen train --seq-len",
    "sample --start=x": "an argument",
    "sample --output x.txt": "add > FILE",
    "sample --temprature 1": "did you mean --temperature?",
    "sample --prompt": "--prompt needs a value",
    "beam-search --length-penalty 1": "did you mean --alpha?",
    "eval --tasks wikitext": "seqgen eval measures",
    "sample --load_in_8bit": "did you mean --precision int8?",
    "sample --colour red": "No such option: --colour (try",
    "sample --out_dir=book": "did you mean -m NAME?",
    "train text.txt --out_dir=book": "--name NAME",
    "train text.txt --max-tokens 4096": "--batch-size (for pairs, --set batch_tokens=4096)",
    "bleu --max-tokens 5": "--max-tokens is an option of seqgen sample",
    "train text.txt --n_head 2 --model lstm": "--n_head is for --model transformer",
    "train text.txt --order 3 --model lstm": "order is for --model ngram, not lstm (",
    "--model book": "options come after a command: seqgen sample PROMPT -m NAME",
    "log": "seqgen models show NAME",
    "diff a b": "seqgen compare",
    "distill book": "there is no distillation",
    "test text.txt": "seqgen perplexity FILE",
    "rouge a b": "BLEU, chrF",
    "torchrun text.txt": "torchrun --nproc-per-node",
    "llama-run x": "seqgen sample PROMPT",
    "fairseq-preprocess x": "not needed",
    "sample --mirostat 2": "no Mirostat",
    "sample --eos_token_id 0": "did you mean --stop?",
    "sample --beams 4": "--beams is an option of seqgen beam-search, eval",
    "train text.txt --ngpu 2": "torchrun --nproc-per-node N",
    "train text.txt --warmup_ratio 0.1": "--set warmup=VALUE",
    "bleu ref.txt -i hyp.txt": "seqgen bleu HYP REF",
    "bleu h.txt r.txt -m chrf": "did you mean --metric?",
    "perplexity text.txt --lines": "did you mean --per-line?",
    "train text.txt --output_dir x": "--name NAME",
    "train text.txt --resume_from_checkpoint x": "did you mean --resume?",
    "train text.txt --per_device_train_batch_size 8": "did you mean --batch-size?",
    "train text.txt --eval_interval 5": "--set validate_every=VALUE",
    "train text.txt --warmup_steps 5": "--set warmup=0.02",
    "train text.txt --lr-scheduler cosine": "did you mean --schedule?",
    "train text.txt --gradient_accumulation_steps 8": "--set accumulate=N",
    "models remove book -f": "did you mean --yes?",
    "train text.txt -e 3": "did you mean --epochs?",
    "train text.txt --criterion cross_entropy": "did you mean --regime?",
    "bleu --sys out.txt --ref ref.txt": "seqgen bleu HYP REF",
    "sample -cnv": "did you mean --interactive?",
    "train text.txt --n_layer 0": "seqgen: --n_layer must be from 1",
    "train text.txt --n_embd=0": "seqgen: --n_embd must be at least 1",
    "train text.txt --model LSTM": "did you mean 'lstm'?",
    "train text.txt --tokenizer BPE": "did you mean 'bpe'?",
    "train text.txt --optimizer AdamW": "did you mean 'adamw'?",
    # lmplz, ngram-count and ngram
    "train text.txt --model ngram --prune 0": "--set prune=VALUE",
    "train text.txt --discount_fallback": "by itself",
    "train text.txt -kndiscount": "did you mean --smoothing kneser-ney?",
    "train text.txt -gt3min 2": "--set prune=0,0,1",
    "perplexity text.txt -unk": "leave it out",
    "perplexity text.txt --unkpen -10": "8 bits for each of their bytes",
    f"perplexity text.txt -mix-lm {MODEL}": "-m A:0.7+B:0.3",
    # generate() and scripts of transformers; llama.cpp
    "sample --guidance-scale 2": "no guidance",
    "sample --ROPE_SCALING linear": "--set rope_scaling=linear",
    "train text.txt --rope-scaling linear": "--set rope_scaling=VALUE",
    "train text.txt --min-count 2": "--set min_count=VALUE",
    "train text.txt --lora_target_modules q_proj": "--set lora=8",
    "sample --suppress-tokens 3": "did you mean --ban?",
    "sample --mlock": "leave it out",
    # fairseq, OpenNMT, CTranslate2, mlx-lm, litgpt, sacreBLEU
    "train text.txt -valid_steps 5": "--set validate_every=VALUE",
    "train text.txt --decoder-ffn-embed-dim 8": "--set ffn_size=N",
    "beam-search a --diverse-beam-groups 2": "did you mean --groups?",
    "sample --compute_type int8": "did you mean --precision?",
    "mlx_lm.lora": "--set lora=8",
    "train text.txt --train.micro_batch_size 8": "--set accumulate=N",
    "bleu h.txt r.txt --chrf-word-order 2": "did you mean --metric chrf++?",
}
# The same, of what plugins do.
NAMED_BY_PLUGINS = {
    "download gpt2": ("exchange", "seqgen import hf:OWNER/NAME"),
    "pull llama3": ("exchange", "seqgen import hf:OWNER/NAME"),
    "convert x": ("exchange", "seqgen export NAME"),
    "quantize x": ("exchange", "--type q8_0"),
    "quantise x": ("exchange", "--type q8_0"),
    "bench -m book": ("bench", "seqgen compare A B shows the speed of models"),
    "plan --parameters 1e9": ("bench", "it is seqgen bench plan"),
    "train text.txt --init-from gpt2": ("exchange", "seqgen import FOLDER"),
    "train text.txt --init-from meta-llama/Llama-3.2-1B": ("exchange", "seqgen import FOLDER"),
    "train text.txt --model gpt2": ("exchange", "seqgen import hf:openai-community/gpt2 "),
    "sample x -m distilgpt2": ("exchange", "seqgen import hf:distilbert/distilgpt2 "),
    "sample x -m hf:a/b": ("exchange", "seqgen import hf:a/b "),
    "login": ("exchange", "hf auth login"),
    "export book out.gguf": ("exchange", "did you mean --out out.gguf?"),
    "upload book": ("exchange", "seqgen push NAME hf:OWNER/NAME"),
    f"import {MODEL}": ("exchange", f"is a model of seqgen, and needs no import: -m {MODEL}"),
    "embed": ("vectors", "seqgen vectors"),
    "benchmark": ("bench", "seqgen bench plan"),
}


# The name of a stored model as an argument, and what is said: an error, or, with 0, a notice.
AS_ARGUMENT = installed(
    {
        "eval sand text.txt": (
            2,
            "unexpected argument: text.txt; sand is a stored model: -m sand ",
        ),
        "eval text.txt sand": (2, "unexpected argument: sand; sand is a stored model: -m sand "),
        "diagnose text.txt sand": (
            2,
            "unexpected argument: sand; sand is a stored model: -m sand ",
        ),
        "eval sand": (2, "there is no file sand; sand is a stored model: -m sand"),
        "perplexity sand": (2, "there is no file sand; sand is a stored model: -m sand"),
        "perplexity sand -f text.txt": (
            2,
            "there is no file sand; sand is a stored model: -m sand",
        ),
        "tokenize sand x": (2, "there is no file sand; sand is a stored model: -m sand"),
        "sample sand --max-tokens 2": (0, "sand is a stored model: -m sand (here it is a PROMPT)"),
        "beam-search a sand --max-tokens 2": (0, "sand is a stored model: -m sand"),
        "sample sand $ --max-tokens 2": (
            1,
            "does not know '$' (line 1, column 1); leave it out, or ",
        ),
        "sample -i sand": (2, "--interactive takes no PROMPT; sand is a stored model: -m sand"),
    }
)


@pytest.fixture
def sand(text):
    shutil.copytree(MODEL, Path("home/models/sand"))


@pytest.mark.parametrize("typed", AS_ARGUMENT)
def test_a_stored_model_given_as_an_argument_is_explained(typed, sand, cli):
    code, said = AS_ARGUMENT[typed]
    found, _, err = cli(*typed.split())
    assert (found, err.splitlines()[-1].count(said)) == (code, 1)


@pytest.mark.parametrize(
    ("typed", "own"),
    [
        pytest.param(typed, own, marks=needs(own))
        for typed, own in {
            "chat sand": "chat",
            "serve sand --port 0": "serve",
            "predict sand x": "labels",
            "novelty sand": "novelty",
            "compress sand": "compress",
        }.items()
    ],
)
def test_commands_of_plugins_explain_it_too(typed, own, sand, cli):
    code, out, err = cli(*typed.split())
    assert (code, out) == (2, "") and "sand is a stored model: -m sand" in err


@pytest.mark.parametrize("typed", ["sand", pytest.param("bench sand", marks=needs("bench"))])
def test_a_stored_model_as_the_command_is_explained(typed, sand, cli):
    assert "sand is a stored model: seqgen sample -m sand" in cli(*typed.split())[2]


def test_what_other_tools_call_a_new_or_a_stopped_run(text, cli):
    for name, said in (("resume", "seqgen train --resume NAME"), ("scratch", "leave it out")):
        code, _, err = cli("train", text, "--init_from", name)
        assert code in (1, 2) and err.count("\n") == 1 and said in err


def test_pairs_that_are_read_as_text_are_named(text, cli):
    Path("pairs.tsv").write_text("a cat\tun chat\na dog\tun chien\n" * 40)
    few = ("--steps", "1", "--layers", "1", "--hidden-size", "4")
    for more, said in (((), 1), (("--model", "lstm"), 0), (("--quiet",), 0)):
        code, _, err = cli("train", "pairs.tsv", *few, *more)
        assert (code, err.count("--model auto trains a translator of its pairs")) == (0, said)


def test_a_word_that_is_called_like_a_short_option_stays_one(text, cli):
    for word in "mqvi":
        assert "does not know" in cli("sample", word, "-m", MODEL, "--max-tokens", "2")[2]


def test_only_stored_models_are_suggested_after_m(sand, cli):
    Path("sand").write_text(TEXT)
    for typed in (
        "eval text.txt other",
        "eval text.txt sand -m sand",
        "sample tent --max-tokens 2",
        "sample sand -m sand --max-tokens 2",
        "sample sand -q --max-tokens 2",
        "perplexity sand",
        "perplexity latest",
        f"perplexity {'x' * 300}",
        "perplexity ../models/sand",
    ):
        assert "-m" not in cli(*typed.split())[2], typed


@pytest.mark.parametrize("typed", SAME)
def test_a_habit_that_means_the_same_works(typed, text, cli):
    ours = cli(*SAME[typed].split())
    assert cli(*typed.split()) == ours
    assert "No such" not in ours[2] and "no command" not in ours[2]


@needs("patterns", "serve")
def test_patterns_and_servers_have_other_names(text, cli):
    ours = cli(*f"{SAMPLE} --pattern [ab]+ --max-tokens 5".split())
    assert ours[0] == 0 and cli(*f"{SAMPLE} --regex [ab]+ --max-tokens 5".split()) == ours
    assert cli("server", "--port", "x") == cli("serve", "--port", "x")


@pytest.mark.parametrize("typed", NAMED)
def test_any_other_habit_is_one_line_that_names_ours(typed, text, cli):
    code, out, err = cli(*typed.split())
    assert (code, out, err.count("\n")) == (2, "", 1) and NAMED[typed] in err


@pytest.mark.parametrize(
    ("typed", "named"),
    [pytest.param(one, named, marks=needs(own)) for one, (own, named) in NAMED_BY_PLUGINS.items()],
)
def test_what_plugins_do_is_named_too(typed, named, text, cli):
    code, out, err = cli(*typed.split())
    assert code in (1, 2) and (out, err.count("\n")) == ("", 1) and named in err


@needs("exchange")
def test_names_of_pretrained_models_are_no_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("book", "./gpt2", "~/gpt2", "runs/gpt2", "/models/gpt2", "my-gpt2"):
        assert pretrained_hint(name) == "", name
    for name in ("gpt2", "GPT2-XL", "openai-community/gpt2", "someone/anything"):
        assert "seqgen import" in pretrained_hint(name), name


def test_the_words_name_commands_and_options_that_there_are():
    every, flags = {*all_commands(), *help_texts()["examples"]}, set()
    for command in _commands():
        flags |= {flag for one in command.params for flag in one.opts}
        flags |= {one.metavar for one in command.params if one.param_type_name == "argument"}
    flags = {flag.strip("[].") for flag in flags}
    for name, word in words_elsewhere("commands").items():
        assert name not in every, name
        for own in word.same:
            assert own.split()[0] in (*every, "--version", "--man"), name
    for name, word in words_elsewhere("options").items():
        assert word.same or word.near or word.says, name
        assert {own.split()[0] for own in (*word.same, *word.near)} <= flags, name


def _commands():
    import typer

    from seqgen.cli import make_app

    found = [typer.main.get_command(make_app())]
    for command in found:
        found += getattr(command, "commands", {}).values()
    return found


def test_the_table_is_not_read_for_what_is_known(text, cli, monkeypatch):
    words_elsewhere.cache_clear()
    monkeypatch.setattr(other_tools, "_tables", lambda: pytest.fail("it was read"))
    assert cli(*SAMPLE.split(), "a", "--max-tokens", "2")[0] == 0
    assert cli("models", "list")[0] == cli("--help")[0] == 0
