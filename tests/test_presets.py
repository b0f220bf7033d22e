"""Known models by name: their shapes counted by hand, what goes over what, and refusals."""

import json
import math
import statistics

import pytest
import torch
from benchmarks.baselines import PlainGPT
from helpers_cli import has_plugin, needs

from seqgen import presets
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.training.datasets.prepared import VocabSizes
from seqgen.training.optimizers import rate
from seqgen.training.plan import plan_of
from seqgen.training.train import train

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def trained(text, **arguments):
    """Train for two steps unless told otherwise; return the result and config.json."""
    arguments.setdefault("settings", {"steps": 2, "seed": 1})
    result = train([text], name="m", overwrite=True, **arguments)
    config = json.loads((text.parent / "home" / "models" / "m" / "config.json").read_text())
    return result, config


def metrics(text):
    path = text.parent / "home" / "models" / "m" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def rnn(v, h):
    return (v + h) * h + h + h * v + v


def lstm(v, h):
    return 4 * ((v + h) * h + h) + h * v + v


def gpt(v, h):
    plain = PlainGPT(v, window=64, size=h, layers=4, heads=4, dropout=0.0, bias=False)
    return sum(p.numel() for p in plain.parameters())


@pytest.mark.parametrize(
    ("name", "architecture", "parameters"),
    [
        ("lectures-rnn", "rnn", lambda v: rnn(v, 64)),
        ("lectures-lstm", "lstm", lambda v: lstm(v, 256)),
        ("gpt", "transformer", lambda v: gpt(v, 128)),
    ],
)
def test_a_preset_is_the_model_it_is_named_after(text, name, architecture, parameters):
    result, config = trained(text, preset=name)
    assert (config["architecture"], config["preset"]) == (architecture, name)
    assert result.parameters == parameters(config["model"]["vocab_size"])
    settings = {**config["data"], **config["training"], **config["model"]}
    assert (
        presets.PRESETS[name].settings.items()
        - {("epochs", 7.0), ("epochs", 15.0)}
        - {("steps", 2000)}
        <= settings.items()
    )


# They are tested in test_bert.py.
BERTS = ["bert-tiny", "bert-base", "bert-large"]


def test_every_preset_is_tested_above():
    of_text = ["lectures-rnn", "lectures-lstm", "gpt", "awd-lstm", "melis-lstm"]
    of_others = ["transformer-2017", "transformer-small", "pegasus-small", *BERTS, "elmo", "ulmfit"]
    of_labels = {*BERTS, "elmo", "ulmfit"} if not has_plugin("labels") else set()
    assert list(presets.PRESETS) == [n for n in (*of_text, *of_others) if n not in of_labels]


def planned(name, vocab_size, **settings):
    """Return the plan of a preset for pairs and its parameters, without any of their memory."""
    plan = plan_of(None, presets.preset(name), settings, {}, list(settings))
    with torch.device("meta"):
        model = plan.model_class(plan.model_config(VocabSizes(vocab_size), 1))
    return plan, model.parameter_count()


def stacked(widths, inputs):
    """Return the parameters of LSTM layers of these widths."""
    reads = [inputs, *widths[:-1]]
    return sum(4 * h * (e + h + 1) for h, e in zip(widths, reads, strict=True))


def test_the_weight_dropped_lstm():
    """24 million parameters with Penn Treebank's 10,000 words, and the paper's dropouts."""
    plan, parameters = planned("awd-lstm", 10_000)
    assert parameters == stacked([1150, 1150, 400], 400) + 10_000 * 401
    assert parameters == pytest.approx(24e6, rel=0.02)
    names = "input_dropout", "dropout", "output_dropout", "word_dropout", "weight_drop"
    assert [plan.model[name] for name in names] == [0.4, 0.3, 0.4, 0.1, 0.5]
    assert (plan.model["activation_penalty"], plan.model["temporal_penalty"]) == (2.0, 1.0)
    training = plan.training
    assert (training.optimizer, training.lr, training.clip_norm) == ("sgd", 30.0, 0.25)
    assert rate(training, 0.0, 0) == rate(training, 1.0, 10**6) == 1.0


def test_the_best_lstm_of_a_search():
    """24 million parameters; the rate falls to a tenth in the last tenth of the steps."""
    plan, parameters = planned("melis-lstm", 10_000)
    assert parameters == stacked([723] * 4, 723) + 10_000 * 724
    assert parameters == pytest.approx(24e6, rel=0.01)
    training = plan.training
    rates = [rate(training, share, int(share * 100_000)) for share in (0.0, 0.89, 0.91, 0.99)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1])
    assert (training.beta1, training.beta2, training.batch_size) == (0.0, 0.999, 64)


@needs("labels")
def test_the_language_models_of_elmo():
    """Layers of 4096 mapped to 512, in two directions, over 1,400 filters of characters."""
    plan, parameters = planned("elmo", 10_000)
    layers = 2 * 2 * (4 * 4096 * (512 + 512 + 1) + 4096 * 512)
    filters = sum(200 * (16 * width + 1) for width in range(1, 8))
    of_words = 259 * 16 + filters + 2 * 2 * (1400**2 + 1400) + 1400 * 512 + 512
    assert parameters == layers + of_words + 10_000 * 513
    assert plan.training.epochs == 10 and plan.data.documents == "line"


def test_the_base_model_of_2017():
    """65 million parameters with 37,000 tokens, and the rate of their equation 3 at every step."""
    plan, parameters = planned("transformer-2017", 37_000)
    attention, feed_forward, norm = 4 * (512**2 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert parameters == 37_000 * 512 + encoder + decoder
    assert parameters == pytest.approx(65e6, rel=0.05)
    training = plan.training
    for step in (1, 400, 4000, 16_000, 100_000):
        theirs = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        ours = training.lr * rate(training, step / training.steps, step)
        assert ours == pytest.approx(theirs, rel=1e-6) or step < 40  # never below a hundredth
    adam = training.optimizer, training.beta1, training.beta2, training.eps
    assert adam == ("adam", 0.9, 0.98, 1e-9)
    assert (training.weight_decay, training.clip_norm, training.label_smoothing) == (0, 0, 0.1)


def test_the_small_translator_of_today():
    """Its feed-forward parts are 8/3 wide, in eights; nothing has a bias; all tokens share."""
    plan, parameters = planned("transformer-small", 6000)
    attention, feed_forward = 4 * 256**2 + 2 * 64, 3 * 256 * 688
    encoder = 3 * (attention + feed_forward + 2 * 256) + 256
    decoder = 3 * (2 * attention + feed_forward + 3 * 256) + 256
    assert parameters == 6000 * 256 + encoder + decoder
    assert (plan.training.optimizer, plan.model["dropout"]) == ("muon", 0.3)


def test_the_translator_that_can_be_exported():
    """Every map has a bias and every norm two vectors; feed-forward parts are 4 wide."""
    plan, parameters = planned("pegasus-small", 6000)
    attention, feed_forward, norm = 4 * (256**2 + 256), 2 * 4 * 256**2 + 5 * 256, 2 * 256
    encoder = 3 * (attention + feed_forward + 2 * norm) + norm
    decoder = 3 * (2 * attention + feed_forward + 3 * norm) + norm
    assert parameters == 6000 * 256 + encoder + decoder
    config = plan.model_config(VocabSizes(6000), 513)
    hf_pairs = pytest.importorskip("seqgen.plugins.exchange.hf_pairs")
    assert hf_pairs.write(config, "m")["model_type"] == "pegasus"


def test_a_preset_for_pairs_takes_flags_and_pairs(text):
    pairs = text.parent / "pairs.tsv"
    pairs.write_text("".join(f"{n} times\t{n}\n" for n in range(30)))
    small = {"hidden_size": 8, "ffn_size": 16, "num_layers": 1, "num_heads": 2, "steps": 2}
    result, config = trained(pairs, preset="transformer-2017", settings={**small, "seed": 1})
    assert (result.steps, config["preset"]) == (2, "transformer-2017")
    assert (config["training"]["steps"], config["training"]["warmup"]) == (2, 0.04)
    assert config["model"]["norm_position"] == "post"


def test_the_lectures_windows(text):
    """50 characters from a zero state, one window a step, in order, seven times the text."""
    result, config = trained(text, preset="lectures-rnn", settings={"seed": 1})
    assert (result.stopped, config["training"]["epochs"]) == ("epochs", 7.0)
    characters = len(TEXT) * 9 // 10
    assert result.steps == 7 * math.ceil(characters / 50)
    assert result.tokens == 7 * characters
    assert (config["training"]["windows"], config["training"]["reset_state"]) == (
        "sequential",
        True,
    )


def test_flags_go_over_the_file_and_the_file_over_the_preset(text):
    file = {"training": {"lr": 0.5, "batch_size": 3, "steps": 4}, "hidden_size": 8}
    settings = {"lr": 0.25, "seed": 1}
    _, config = trained(text, preset="lectures-rnn", config=file, settings=settings)
    training = config["training"]
    assert (training["lr"], training["batch_size"], training["seq_len"]) == (0.25, 3, 50)
    assert (training["steps"], training["epochs"]) == (4, None)
    assert (config["model"]["hidden_size"], config["model"]["input"]) == (8, "onehot")


def test_a_configuration_file_may_name_the_preset(text):
    first, config = trained(text, preset="lectures-rnn")
    weights = text.parent / "home" / "models" / "m" / "model.safetensors"
    before = weights.read_bytes()
    # A model's config.json gives the same again, and still tells of the preset.
    again, same = trained(text, config=config, settings={})
    assert same == config and weights.read_bytes() == before
    assert again.train_loss == first.train_loss
    _, named = trained(text, config={"preset": "lectures-rnn"})
    assert named == config


def test_a_resumed_run_keeps_the_preset_in_its_configuration(text, capfd):
    trained(text, preset="lectures-rnn")
    assert run(["train", "--resume", "m", "--steps", "4", "--quiet"]) == 0
    path = text.parent / "home" / "models" / "m" / "config.json"
    assert json.loads(path.read_text())["preset"] == "lectures-rnn"
    assert run(["train", "--resume", "m", "--preset", "lectures-rnn"]) == 2
    assert capfd.readouterr().err.splitlines()[-1].endswith("--preset has no meaning with --resume")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--preset", "lecture-rnn"], "did you mean 'lectures-rnn'?"),
        (["--preset", "qqq"], "there are lectures-rnn, lectures-lstm, gpt"),
        (["--preset", ""], "there are lectures-rnn"),
        (["--preset", "lectures-rnn", "--model", "lstm"], "is for --model rnn, not lstm"),
        (["--preset", "gpt", "--set", "input=onehot"], "input is for --model "),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_nothing(text, capfd, flags, said):
    assert run(["train", str(text), *flags]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert not (text.parent / "home").exists()


@pytest.mark.parametrize("settings", [{"reset_state": False}, {"documents": "line"}])
def test_sequential_windows_are_those_of_a_stream_that_carry_nothing(text, settings):
    with pytest.raises(UsageError, match="windows=sequential is for a stream"):
        trained(text, preset="lectures-rnn", settings=settings)
    plan = {**settings, "windows": "random", "steps": 1}
    assert trained(text, preset="lectures-rnn", settings=plan)[0].steps == 1


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"preset": "gpt"}, "--preset lectures-rnn: the configuration file has gpt"),
        ({"architecture": "gru"}, "is for --model rnn, not gru"),
        ({"preset": ["gpt"]}, "preset must be a text or none"),
    ],
)
def test_a_file_that_means_something_else(text, file, said):
    with pytest.raises(UsageError, match=said):
        trained(text, preset="lectures-rnn", config=file)


def test_the_presets_own_architecture_may_be_named_too(text):
    assert trained(text, preset="lectures-rnn", architecture="rnn")[0].architecture == "rnn"


def test_help_names_every_preset_and_describes_it_when_asked(capfd):
    assert run(["train", "--help"]) == 0
    words = capfd.readouterr().out.replace(",", " ").replace(". ", " ").split()
    assert set(presets.PRESETS) <= set(words)
    assert run(["train", "--preset", "help"]) == 0
    lines = [line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines()]
    assert lines == [[row.name, row.summary] for row in presets.PRESETS.values()]
    assert run(["train", "--preset", "help", "--json"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert records == [
        {"name": row.name, "architecture": row.architecture, "summary": row.summary}
        for row in presets.PRESETS.values()
    ]


def test_the_help_of_train_is_not_endless(capfd):
    """Names may be listed, and a sentence or two say what an option does."""
    assert run(["train", "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    options = sum(line.lstrip().startswith("--") for line in lines)
    assert len(lines) <= 45 + 2.2 * options


def test_epoch_mean_and_spread_are_those_of_its_windows(text, monkeypatch):
    """Against every single step's loss, of which each is a record here."""
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
    settings = {"epochs": 2.5, "seed": 1}
    result, _ = trained(text, preset="lectures-rnn", settings=settings)
    records = [r for r in metrics(text) if "train_loss" in r]
    losses = [r["train_loss"] for r in records]
    characters = len(TEXT) * 9 // 10
    epoch = math.ceil(characters / 50)
    counts = [50] * (epoch - 1) + [characters % 50]  # the last window is what is left
    assert [r["step"] for r in records] == list(range(1, result.steps + 1))
    assert records[epoch - 2]["epoch_loss"] is None
    for end in (epoch, 2 * epoch):
        record, own = records[end - 1], losses[end - epoch : end]
        mean = statistics.fmean(own, counts)
        spread = math.sqrt(statistics.fmean([(loss - mean) ** 2 for loss in own], counts))
        assert record["epoch_loss"] == pytest.approx(mean, rel=1e-9)
        assert record["epoch_loss_std"] == pytest.approx(spread, rel=1e-6)
    assert result.epoch_loss == records[-1]["epoch_loss"] == records[2 * epoch - 1]["epoch_loss"]
    assert result.epoch_loss_std == records[-1]["epoch_loss_std"]
    assert max(r["train_loss_std"] for r in records) < 1e-6  # of one step each


def test_the_spread_since_the_last_record(text, monkeypatch):
    """The same losses, in a record each, and in one record of them all."""
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
    trained(text, preset="lectures-rnn", settings={"steps": 7, "seed": 1})
    losses = [r["train_loss"] for r in metrics(text) if "train_loss" in r]
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 1e9)
    trained(text, preset="lectures-rnn", settings={"steps": 7, "seed": 1})
    (record,) = [r for r in metrics(text) if "train_loss" in r]
    assert record["train_loss"] == pytest.approx(statistics.fmean(losses), rel=1e-9)
    assert record["train_loss_std"] == pytest.approx(statistics.pstdev(losses), rel=1e-6)


def test_an_epoch_goes_on_over_a_resume(text):
    whole, _ = trained(text, preset="lectures-rnn", settings={"epochs": 1, "seed": 1})
    trained(text, preset="lectures-rnn", settings={"epochs": 1, "seed": 1}, stop_after=4)
    assert run(["train", "--resume", "m", "--quiet"]) == 0
    record = json.loads((text.parent / "home" / "models" / "m" / "training.json").read_text())
    assert record["result"]["epoch_loss"] == whole.epoch_loss
    assert record["result"]["epoch_loss_std"] == whole.epoch_loss_std


def test_the_gpt_preset_steps_as_its_baseline(text):
    """The same rate at the same step as nanoGPT's schedule, of which bench has its own copy."""
    from benchmarks.gpt import PEAK, _rate

    from seqgen.settings.training import TrainingConfig
    from seqgen.training.optimizers import rate

    _, config = trained(text, preset="gpt")
    training = TrainingConfig(**{**config["training"], "steps": 2000})
    for step in (100, 500, 1000, 1999):
        ours = training.lr * rate(training, step / 2000, step)
        assert ours == pytest.approx(_rate(step, 2000), rel=1e-6)
    assert training.lr == PEAK
