"""The headings that help and the documentation list options under, in their order."""

ARGUMENTS, WHAT, MODEL, TEXT, BUDGET = "Arguments", "What to train", "Model", "Text", "Budget"
OPTIMISATION, SEARCH, LENGTH = "Optimisation", "Search", "Length and number"
FILTERS, SCORES, TESTS, MEASURED = "Filters", "Scores", "Significance", "What to measure"
TRANSLATED, ATTENTION = "Translations by models of pairs", "Attention to the source"
SAVING, OUTPUT = "Saving", "Output"
MACHINE, OTHER = "Machine", "Other options"
PANELS = (
    *(ARGUMENTS, WHAT, MEASURED, MODEL, TEXT, BUDGET, OPTIMISATION, SEARCH, LENGTH, FILTERS),
    *(SCORES, TRANSLATED, TESTS, ATTENTION, SAVING, OUTPUT, MACHINE, OTHER),
)
