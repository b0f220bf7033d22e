"""Three examples for the help of every command: a line to type, and what it does."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("seqgen train book.txt", "Train on a text for five minutes."),
        ('seqgen sample "Once upon a time"', "Write with the latest model."),
        ("seqgen perplexity other.txt", "Score another text with it."),
    ),
    "predict": (
        ("seqgen predict names.txt -m languages", "Write a label for each line."),
        ("echo Rossi | seqgen predict -m languages --json", "Show its probability too."),
        ("seqgen predict words.conll -m tagger", "Write a tag for each word."),
    ),
    "vectors": (
        ("seqgen vectors -m words --neighbours motel", "Show the ten nearest words."),
        ("seqgen vectors -m words --analogy 'paris:france::tokyo:?'", "Complete an analogy."),
        ("seqgen vectors -m words --plot words.svg", "Draw the most frequent words."),
    ),
    "tokenize": (
        ("seqgen tokenize book.txt -m book-lstm", "Show the token ids that a model reads."),
        ("seqgen tokenize book.txt --train bpe --vocab-size 4000 --out bpe", "Train a tokenizer."),
        ("seqgen tokenize big/*.txt --tokenizer bpe --out big.tok", "Encode a large text once."),
    ),
    "train": (
        ("seqgen train book.txt --minutes 10", "Train the default LSTM for ten minutes."),
        (
            "seqgen train *.txt --model transformer --tokenizer bpe --vocab-size 2000",
            "Train a transformer on subwords of several files.",
        ),
        (
            "seqgen train --resume latest --minutes 30",
            "Continue the latest run, with a longer budget.",
        ),
    ),
    "tune": (
        ("seqgen tune book.txt --minutes 30", "Search what the default model suggests."),
        ("seqgen tune book.txt --trials 20 --search lr=1e-3:1e-1:log", "Search a learning rate."),
        ("seqgen tune book.txt --trials 20 --search model=gru,lstm", "Compare architectures."),
    ),
    "find-lr": (
        ("seqgen find-lr book.txt --model gru", "Find a learning rate for a GRU."),
        ("seqgen find-lr book.txt --plot rates.svg", "Draw the losses into a file."),
        ("seqgen find-lr book.txt --optimizer sgd --json", "Print each step as JSON Lines."),
    ),
    "sweep": (
        (
            "seqgen sweep book.txt --models gru,lstm --parameters 30k,100k",
            "Train both at equal sizes, and compare.",
        ),
        (
            "seqgen sweep book.txt --models rnn,gru --parameters 30k --seeds 1,2,3",
            "See how far results differ by seed.",
        ),
        (
            "seqgen sweep book.txt --models gru,lstm --parameters 1M --plot sizes.svg",
            "Draw the results into a file.",
        ),
    ),
    "mix": (
        ("seqgen mix book-lstm book-ngram --name both", "Mix, with the best weights."),
        ("seqgen mix A B --name AB --weights 0.7,0.3", "Mix with these weights."),
        ("seqgen mix A B --name AB --copy", "Keep copies of A and B in the new model."),
    ),
    "sample": (
        ('seqgen sample "Once upon a time" --temperature 0.8', "Continue a text."),
        ("seqgen sample -m book-lstm --num-samples 5 --json", "Write five texts as JSON Lines."),
        ("seqgen sample --interactive", "Type prompts one after another."),
    ),
    "beam-search": (
        ('seqgen beam-search "Once upon" --beams 8', "Find the most probable continuation."),
        ('seqgen beam-search "Once" --beams 8 --nbest 8', "List the eight most probable ones."),
        ('seqgen beam-search "Once" --max-tokens 5 --explain', "Draw the search tree."),
    ),
    "fill": (
        ('seqgen fill "the [MASK] is king" -m book-bert', "Write the text with its blank filled."),
        (
            'seqgen fill "the [MASK] is king" -m book-bert --top 5',
            "List the five likeliest tokens.",
        ),
        ("seqgen fill -m book-bert --json < blanks.txt", "Fill in a line at a time, as JSON."),
    ),
    "restore": (
        ('seqgen restore "to bq or nit to be" -m lines', "Restore a line that was stored."),
        ("seqgen restore -m lines < corrupted.txt", "Restore the lines of a file."),
        ('seqgen restore "to be or" -m lines --json', "Complete a line; show the energy as JSON."),
    ),
    "perplexity": (
        ("seqgen perplexity", "Score the held-out text of the latest model."),
        (
            "seqgen perplexity a.txt b.txt -m book-lstm -m book-ngram",
            "Score two files with two models.",
        ),
        ("seqgen perplexity a.txt --per-line | sort -n | tail", "Find the most surprising lines."),
    ),
    "diagnose": (
        ("seqgen diagnose book.txt", "Look inside the latest model."),
        (
            "seqgen diagnose book.txt -m book-rnn --distance 50 --plot gradients.svg",
            "Draw how far gradients reach.",
        ),
        ("seqgen diagnose book.txt -m book-gpt --layer 2 --json", "Write all figures as JSON."),
    ),
    "inspect": (
        ("seqgen inspect book.txt", "Show the most probable tokens at each place of a text."),
        ("seqgen inspect --text hello --steps", "Follow a recurrent network by hand."),
        (
            "seqgen inspect book.txt --attention --head 5,6 --token its --html its.html",
            "Show what two heads read for a word.",
        ),
    ),
    "report": (
        ("seqgen report", "Write a page about the latest model into report.html."),
        ("seqgen report book-lstm book-gpt --out both.html", "Set two side by side."),
        ("seqgen report --watch", "Watch the latest run in a browser."),
    ),
    "serve": (
        ("seqgen serve", "Serve every stored model, with a page at http://127.0.0.1:8000."),
        ("seqgen serve -m book-lstm -m book-gpt --memory 2G", "Serve two, within 2 GB."),
        ("seqgen serve --host 0.0.0.0 --api-key KEY", "Let other machines ask, with a key."),
    ),
    "novelty": (
        ("seqgen novelty", "See what the latest model copies when it writes."),
        ("seqgen novelty essay.txt -m book-lstm", "Find what a text has in common with the book."),
        (
            "seqgen novelty lines.txt --documents line --against a.txt b.txt",
            "Look every line up in two files.",
        ),
    ),
    "course": (
        ("seqgen course", "List the steps, with how long each takes."),
        ("seqgen course 1.4", "Show a step and run its commands."),
        ("seqgen course 3.2 --no-run", "Read a step without running it."),
    ),
    "replay": (
        ("seqgen replay results.jsonl", "Say of each record whether it comes out equal."),
        ("seqgen replay results.jsonl.gz --json", "Name what differs, in JSON."),
        ("seqgen replay results.jsonl --update", "Keep what the records are now."),
    ),
    "data": (
        ("seqgen data book.txt", "See what is in a text, and what of it would hurt training."),
        ("seqgen data names.txt --documents line", "Look at what would be held out of a list."),
        ("seqgen data corpus/ --json", "Write all figures of a folder as JSON."),
    ),
    "compress": (
        ("seqgen compress book.txt -m book-ngram > book.sg", "Compress a text."),
        ("seqgen compress book.txt -m book-lstm --json", "See how small it gets."),
        ("seqgen compress - -m book-ngram < book.txt | wc -c", "The same in a pipe."),
    ),
    "decompress": (
        ("seqgen decompress book.sg -m book-ngram > book.txt", "Get the text back."),
        ("seqgen decompress book.sg -m book-ngram | cmp - book.txt", "Compare it."),
        ("seqgen decompress book.sg -m book-ngram --json", "Check the file, and write sizes."),
    ),
    "bleu": (
        ("seqgen bleu output.txt reference.txt", "Score a translation."),
        ("seqgen bleu output.txt ref.txt --metric bleu --metric chrf --json", "Use two metrics."),
        (
            "seqgen bleu new.txt ref.txt --against old.txt",
            "Test whether the new system is really better.",
        ),
    ),
    "eval": (
        ("seqgen eval", "Measure everything that applies to the latest model."),
        ("seqgen eval test.txt -m book-lstm -m book-gpt", "Show two models side by side."),
        ("seqgen eval --pairs minimal-pairs.tsv", "Count the pairs that a model gets right."),
    ),
    "compare": (
        ("seqgen compare book-lstm book-ngram", "Compare two models on their held-out text."),
        ("seqgen compare --all --data test.txt", "Compare all models on a text."),
        ("seqgen compare A B --data test.txt --json", "Print JSON Lines."),
    ),
    "import": (
        ("seqgen import SmolLM-135M --name smol", "Import a Hugging Face folder."),
        ("seqgen import news.arpa.gz", "Import an n-gram model from another tool."),
        ("seqgen import char.arpa --like book-ngram", "Use the tokenizer of another model."),
    ),
    "export": (
        ("seqgen export book-ngram --out book.arpa", "Export an n-gram model for other tools."),
        ("seqgen export book --format hf --out book-hf", "A transformer, for Hugging Face."),
        ("seqgen export book --format onnx --out book-onnx", "Graphs for ONNX Runtime."),
    ),
    "models": (
        ("seqgen models", "List the trained models."),
        ("seqgen models show book-lstm", "Show one model and how its training went."),
        ("seqgen models --architectures lstm", "List every setting of an architecture."),
    ),
    "models list": (
        ("seqgen models list", "List the trained models."),
        ("seqgen models list --json", "List them as JSON Lines."),
        ("seqgen models list --json | jq -r .path", "Print their folders."),
    ),
    "models show": (
        ("seqgen models show", "Show the latest model."),
        ("seqgen models show book-lstm --all", "Show every setting and every figure."),
        ("seqgen models show book-lstm --samples", "Show what it wrote while it learned."),
    ),
    "models remove": (
        ("seqgen models remove book-lstm", "Delete a model; asks for confirmation."),
        ("seqgen models remove a b c", "Delete three models."),
        ("seqgen models remove a --yes", "Delete without asking."),
    ),
    "models rename": (
        ("seqgen models rename book-lstm novel", "Give a model another name."),
        ("seqgen models rename latest novel", "Rename the latest model."),
        ("seqgen models rename ./copy/book-lstm novel", "Rename a model outside the usual folder."),
    ),
    "models path": (
        ("seqgen models path", "Print the folder of the latest model."),
        ("cp -r $(seqgen models path book-lstm) backup/", "Copy a model."),
        ("tail -f $(seqgen models path)/metrics.jsonl", "Watch a run as it trains."),
    ),
    "models cache": (
        ("seqgen models cache", "List the cached files."),
        ("seqgen models cache --json", "List them as JSON Lines."),
        ("seqgen models cache --clear", "Delete encoded texts and measured speeds."),
    ),
    "bench": (
        ("seqgen bench plan --parameters 100M", "Show memory and traffic on 1 to 64 ranks."),
        ("seqgen bench plan --parameters 1e9 --shard", "Divide the model by rank."),
        ("seqgen bench plan --parameters 1e9 --json", "Print JSON Lines."),
    ),
    "help": (
        ("seqgen help", "List the topics."),
        ("seqgen help pipes", "Explain standard input and output."),
        ("seqgen help train", "Show all options of a command."),
    ),
    "bench plan": (
        ("seqgen bench plan --parameters 1e9", "Show memory and traffic on 1 to 64 ranks."),
        ("seqgen bench plan --parameters 7e9 --ranks 64,256 --shard", "Divide the model by rank."),
        (
            "seqgen bench plan --layers 12 --hidden-size 768 --bandwidth 1 --gflops 1e4",
            "Compare the time for computing and for moving data.",
        ),
    ),
}
