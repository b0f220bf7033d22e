"""Lists of ingredients, a tab, and a recipe made of them.

python corpora/cooking.py > corpora/cooking.tsv
seqgen beam-search --source lists.txt -m cook --json | python corpora/cooking.py --score
"""

from __future__ import annotations

import argparse
import json
import re
import sys

from grammar import Rng

SEED, RECIPES = 1747, 1100
# By kind: what it is, and what is done with it.
KINDS = {
    "root": ("carrots beetroots potatoes parsnips turnips swedes onions leeks",
             ["Peel the {} and cut them small.", "Boil the {} until they are soft.",
              "Roast the {} for half an hour."]),
    "green": ("spinach cabbage kale cress lettuce chard rocket celery",
              ["Wash the {} and chop it.", "Steam the {} for three minutes.",
               "Fry the {} in a little oil."]),
    "grain": ("rice barley millet couscous oatmeal bulgur buckwheat polenta",
              ["Cook the {} in twice as much water.", "Let the {} swell under a lid.",
               "Toast the {} in a dry pan."]),
    "protein": ("tofu trout bacon chicken mackerel cod ham lamb",
                ["Cut the {} into strips and brown it.", "Bake the {} until it is done.",
                 "Salt the {} and grill it."]),
    "dairy": ("cream butter yoghurt cheese milk buttermilk",
              ["Stir in the {}.", "Serve with the {}.", "Take off the heat and add the {}."]),
    "spice": ("cumin nutmeg pepper saffron paprika ginger mint thyme",
              ["Season with the {}.", "Scatter the {} over it.", "Add a pinch of the {}."]),
}  # fmt: skip
KIND_OF = {name: kind for kind, (names, _) in KINDS.items() for name in names.split()}
DISHES = ["Stew", "Soup", "Bake", "Salad", "Pie", "Hotpot"]


def recipe(rng: Rng) -> tuple[list[str], str]:
    """Return ingredients in any order, and what is made of them: kind after kind, as they cook."""
    chosen = [rng.pick(KINDS[kind][0].split()) for kind in sorted(
        rng.sample(list(KINDS), 3 + rng.below(3)), key=list(KINDS).index)]  # fmt: skip
    title = f"{rng.pick(DISHES)} of {chosen[0]}."
    steps = [rng.pick(KINDS[KIND_OF[name]][1]).format(name) for name in chosen]
    return rng.sample(chosen, len(chosen)), " ".join([title, *steps])


def lines() -> list[str]:
    """Return all lines; no list is there twice."""
    rng, made = Rng(SEED), {}
    while len(made) < RECIPES:
        ingredients, text = recipe(rng)
        made.setdefault(frozenset(ingredients), f"{', '.join(ingredients)}\t{text}")
    return list(made.values())


def used(text: str) -> set[str]:
    """Return the ingredients that the steps of a recipe name; its title does not count."""
    steps = text.partition(".")[2]
    return set(re.findall(r"[a-z]+", steps.lower())) & KIND_OF.keys()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write recipes, or score them.")
    parser.add_argument("--score", action="store_true", help="read the records of beam-search")
    if parser.parse_args().score:
        read = [json.loads(record) for record in sys.stdin]
        listed = [set(record["source"].split(", ")) for record in read]
        cooked = [used(record["text"]) for record in read]
        pairs = list(zip(listed, cooked, strict=True))
        print(f"{sum(one == other for one, other in pairs)} of {len(read)} use exactly their list")
        print(f"{sum(len(one - other) for one, other in pairs)} ingredients left out, "
              f"{sum(len(other - one) for one, other in pairs)} made up")  # fmt: skip
    else:
        print("\n".join(lines()))
